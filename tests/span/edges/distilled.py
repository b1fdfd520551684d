"""Heads that became convolutions compute what the heads computed; the others stay; the loss is that of a loop."""

import itertools
import json

import numpy as np
import pytest
import torch
from commands import call
from span.edges.graded_facts.replaced_heads import Transformer, by_loops, stand_in
from torch import nn
from torch.nn import functional as F

import conv2attn
from conv2attn.errors import UnsupportedError
from conv2attn.layers.attention import DistilledAttention
from conv2attn.span import distil, distillation, kernel_head
from conv2attn.span.graded_facts import replacement
from conv2attn.span.graded_facts.forced_runs import ByImage

SIDES, HEADS, WIDTH = (4, 5), 3, 12
CELLS = list(itertools.product(*map(range, SIDES)))
WEIGHTS = [[0.02, 0.05, 0.1], [0.2, 0.15, 0.03], [0.04, 0.06, 0.08]]
"""The table of head 0, by rows and columns of the displacement from -1; the class token has the rest."""


def table_of_head_0():
    """A map (queries, keys) of the class token and the grid, pair by pair."""
    table = torch.zeros(1 + len(CELLS), 1 + len(CELLS))
    table[0] = 1 / (1 + len(CELLS))
    for (q, at), (k, to) in itertools.product(enumerate(CELLS, 1), repeat=2):
        down, right = to[0] - at[0] + 1, to[1] - at[1] + 1
        if 0 <= down <= 2 and 0 <= right <= 2:
            table[q, k] = WEIGHTS[down][right]
    table[1:, 0] = 1 - table[1:].sum(1)
    return table


class Attention(nn.Module):
    """Head 0 reads a fixed table by displacement, the others content."""

    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.qkv.weight.data *= 4
        self.register_buffer("logs", table_of_head_0().log())

    def forward(self, tokens):
        query, key, value = self.qkv(tokens).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        scores = query @ key.mT / (WIDTH // HEADS) ** 0.5
        fixed = self.logs.expand(tokens.shape[0], 1, -1, -1)
        scores = torch.cat([fixed, scores[:, 1:]], 1)
        return self.proj((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))


class Network(nn.Module):
    """A class token, 4x5 patches, and one or more sublayers of attention with residuals."""

    def __init__(self, depth=1, attention=Attention):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, WIDTH, 2, 2), nn.Linear(WIDTH, 4)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(depth))
        self.layers = nn.ModuleList(attention() for _ in range(depth))
        self.extra, self.at = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Parameter(torch.randn(1, 21, WIDTH))

    def forward(self, image):
        tokens = self.stem(image).flatten(2).mT
        tokens = torch.cat([self.extra.expand(image.shape[0], -1, -1), tokens], 1) + self.at
        for norm, layer in zip(self.norms, self.layers, strict=True):
            tokens = tokens + layer(norm(tokens))
        return self.head(tokens.mean(1))


def network_of(depth=1, attention=Attention):
    torch.manual_seed(0)
    return Network(depth, attention).eval()


@pytest.fixture(scope="module")
def images():
    return torch.randn(9, 3, 8, 10, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def test_a_head_by_position_becomes_its_convolution_and_heads_by_content_stay(images):
    network = network_of()
    before = network(images)
    result = distil(network, images, max_loss=1e-4, kernel_size=3)
    (layer,) = result.layers
    assert layer.convolved == (0,)
    assert layer.costs[0] < 1e-6 < 1e-4 < min(layer.costs[1:])
    found = result.network.layers[0]
    assert isinstance(found, DistilledAttention)
    assert torch.allclose(found.kernel[0] * found.scale[0].mean(), torch.tensor(WEIGHTS), atol=1e-6)
    assert torch.allclose(result.network(images), before, atol=1e-5)
    assert torch.equal(network(images), before)
    assert (result.exit_code, result.effect.change < 1e-5) == (0, True)


@torch.no_grad()
def test_the_loss_is_that_of_a_loop_on_the_images_held_out():
    """Every head is replaced; each map is formed pair by pair from the first, fourth, seventh of the images."""
    torch.manual_seed(0)
    network, labels, images = Transformer("by hand").eval(), [0, 1, 2, 3, 0, 1, 2, 3, 0], torch.randn(9, 3, 12, 16)
    result = distil(network, images, max_loss=100, kernel_size=3, labels=labels)
    assert [layer.convolved for layer in result.layers] == [(0, 1)] * 2
    runs = [by_loops(network, images[place])[1] for place in (0, 3, 6)]
    means = [stand_in(torch.stack(maps).mean(0), "position", reach=1) for maps in zip(*runs, strict=True)]
    replaced = {divmod(number, 2): mean for number, mean in enumerate(means)}
    moved, losses = [], []
    for place in (2, 5, 8):
        plain, forced = (by_loops(network, images[place], maps)[0] for maps in ({}, replaced))
        moved.append(float((forced - plain).norm() / plain.norm()))
        losses.append(float((plain.softmax(0)[labels[place]] / forced.softmax(0)[labels[place]]).log()))
    assert result.effect.change == pytest.approx(np.mean(moved), rel=1e-3)
    assert result.effect.loss == pytest.approx(np.mean(losses), rel=1e-2, abs=1e-4)
    assert result.effect.change > 0.01
    assert f"cross entropy: {result.effect.loss:.2e}" in result.to_text()


def test_a_cost_is_the_mean_and_two_of_its_errors():
    """Of 1, 2, 6 the mean is 3, the deviation the root of 7, and two errors are 2 sqrt(7 / 3)."""
    values = torch.tensor([1.0, 2.0, 6.0])
    assert distillation.cost(ByImage(values)) == pytest.approx(3 + 2 * (7 / 3) ** 0.5)
    assert distillation.cost(ByImage(torch.ones(3), values)) == pytest.approx(3 + 2 * (7 / 3) ** 0.5)


def test_a_copy_that_loses_more_on_held_out_images_than_was_asked_for_is_undecided(images, monkeypatch):
    monkeypatch.setattr(distillation, "cost", lambda values: 0.0)
    result = distil(network_of(), images, max_loss=1e-3, kernel_size=3)
    assert result.effect.change > 1e-3
    assert result.exit_code == 3
    assert "above max_loss = 0.001" in result.to_text(100)


class Fused(Attention):
    """Content alone, by torch's fused attention, with a tuple behind it."""

    def forward(self, tokens):
        query, key, value = self.qkv(tokens).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self.proj(mixed.transpose(1, 2).flatten(2))


@torch.no_grad()
def test_more_heads_are_replaced_the_more_they_may_cost_and_at_once_they_cost_no_more(images):
    network, counts = network_of(2, Fused), []
    for max_loss in (1e-3, 0.2, 100):
        result = distil(network, images, max_loss=max_loss)
        counts.append(sum(len(layer.convolved) for layer in result.layers))
        assert all(layer.costs[head] <= max_loss for layer in result.layers for head in layer.convolved)
    assert counts[0] == 0 < counts[1] < counts[2] == 6


def test_where_nothing_is_replaced_the_result_says_so(images):
    result = distil(network_of(1, Fused), images, max_loss=1e-6)
    assert (result.exit_code, result.effect, result.seconds) == (3, None, None)
    assert str(result).startswith("0 of 3 heads became convolutions")


@torch.no_grad()
def test_named_heads_alone_are_replaced(images):
    result = distil(network_of(2, Fused), images, max_loss=100, heads={"layers.1": [2]})
    assert [layer.convolved for layer in result.layers] == [(), (2,)]


@pytest.mark.parametrize("planted", ["transposed kernel", "scale of another query", "heads exchanged"])
def test_a_wrong_table_is_caught(planted, images, monkeypatch):
    own = distillation.distilled_layer

    def wrong(*arguments):
        layer = own(*arguments)
        if planted == "transposed kernel":
            layer.kernel.data = layer.kernel.data.mT.contiguous()
        elif planted == "scale of another query":
            layer.scale.data = layer.scale.data.roll(1, 1)
        else:
            layer.kernel.data = layer.kernel.data.flip(0)
        return layer

    monkeypatch.setattr(distillation, "distilled_layer", wrong)
    with pytest.raises(UnsupportedError, match="C2A122 the distilled network differs"):
        distil(network_of(), images, max_loss=100, kernel_size=3)


def test_a_kernel_of_the_whole_grid_is_the_replacement_by_position():
    attention = torch.rand(21, 21, generator=torch.Generator().manual_seed(3)).softmax(-1).double()
    found = kernel_head(attention, SIDES, 1, 9)
    assert torch.allclose(found.map.double(), replacement(attention, "position", SIDES, 1), atol=1e-7)


@pytest.mark.parametrize(
    ("attention", "why"),
    [
        (torch.eye(9).roll(3, 1), "some queries read nothing within the kernel"),
        (torch.eye(9)[[0, *range(8)]], "some queries never read a displacement that others read"),
    ],
)
def test_a_head_that_no_kernel_stands_for_has_a_reason(attention, why):
    assert kernel_head(attention, (9,), 0, 3) == why


class Scored(Attention):
    """Scores with a fixed part of their own in head 1, and a mask beside the tokens in the call."""

    def forward(self, tokens):
        query, key, value = self.qkv(tokens).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        scores = query @ key.mT / 2
        bias = torch.zeros(1, HEADS, 21, 21, dtype=scores.dtype)
        bias[:, 1] = torch.linspace(0, 3, 21, dtype=scores.dtype)
        return self.proj(((scores + bias).softmax(-1) @ value).transpose(1, 2).flatten(2))


@torch.no_grad()
def test_a_head_whose_scores_are_not_read_becomes_a_convolution_before_any_other(images):
    network = network_of(1, Scored)
    for max_loss in (0.1, 0.2, 100):
        (layer,) = distil(network, images, max_loss=max_loss).layers
        assert not layer.convolved or 1 in layer.convolved
        assert "not inner products" in layer.note
    assert layer.convolved == (0, 1, 2)


class Normed(Attention):
    """A norm behind the output: the module is no sum over heads."""

    def forward(self, tokens):
        return F.layer_norm(super().forward(tokens), [WIDTH])


def test_a_module_that_does_more_than_attend_stays_with_the_reason(images):
    result = distil(network_of(1, Normed), images, max_loss=100)
    assert result.layers[0].convolved == ()
    assert "takes its tokens and returns its output" in result.layers[0].note


class Fragile(Fused):
    """No batch of two in float64; or, where it may run in a network, none outside of it."""

    inside = False

    def forward(self, tokens):
        if tokens.dtype == torch.float64 and len(tokens) == 2 and not Fragile.inside:
            raise RuntimeError("no such batch")
        return super().forward(tokens)


@pytest.mark.parametrize(
    ("in_networks", "told"),
    [(False, "two images do not run together in float64"), (True, "it does not run alone on other tokens")],
)
def test_a_module_that_does_not_run_so_stays_with_the_reason(in_networks, told, images):
    network = network_of(1, Fragile)
    network.register_forward_pre_hook(lambda *_: setattr(Fragile, "inside", in_networks))
    network.register_forward_hook(lambda *_: setattr(Fragile, "inside", False))
    result = distil(network, images, max_loss=100)
    assert result.layers[0].convolved == ()
    assert f"{told} (no such batch)" in result.layers[0].note


@torch.no_grad()
def test_the_command_writes_a_network_that_is_loaded_bit_for_bit(images, tmp_path):
    torch.save(network_of().state_dict(), tmp_path / "network.pt")
    np.save(tmp_path / "images.npy", images.numpy())
    asked = ["distil", tmp_path / "network.pt", "-o", tmp_path / "out.pt", "--inputs", tmp_path / "images.npy"]
    asked += ["--kernel-size", "3", "--arch", f"{__file__}:network_of", "--format", "json"]
    refused = call(*asked, "--max-loss", "1e-9")
    assert (refused.exit_code, (tmp_path / "out.pt").exists()) == (3, False)
    (tmp_path / "out.pt").touch()
    asked += ["--max-loss", "1e-4", "--heads", "auto"]
    assert call(*asked).exit_code == 2
    result = call(*asked, "--force")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["layers"][0]["convolved"] == [0]
    assert told["effect"]["change"] < 1e-5
    wanted = distil(network_of(), images, max_loss=1e-4, kernel_size=3).network
    again = conv2attn.load(tmp_path / "out.pt", model=network_of())
    assert torch.equal(again(images), wanted(images))


def test_programs_compute_the_distilled_network(images, tmp_path):
    result = distil(network_of(), images, max_loss=1e-4, kernel_size=3)
    conv2attn.save(result.network, tmp_path / "out.pt2", example_input=images)
    program = torch.export.load(tmp_path / "out.pt2").module()
    with torch.no_grad():
        assert torch.allclose(program(images), result.network(images), atol=1e-6)
