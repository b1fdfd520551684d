"""What replacing a head changes is what an independent loop over a small transformer says."""

import itertools
import json

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import nn
from torch.nn import functional as F

from conv2attn import heads
from conv2attn.cli import main
from conv2attn.errors import UsageError

SIDES = (3, 4)
HEADS, WIDTH = 2, 12
COUNT = 1 + SIDES[0] * SIDES[1]


class Block(nn.Module):
    """Attention by hand, fused, or that of torch's module, with a residual."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.qkv.weight.data *= 3
        if how == "module":
            self.module = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
            self.module.in_proj_weight, self.module.in_proj_bias = self.qkv.weight, self.qkv.bias
            self.module.out_proj.weight, self.module.out_proj.bias = self.proj.weight, self.proj.bias

    def forward(self, tokens):
        if self.how == "module":
            return tokens + self.module(tokens, tokens, tokens, need_weights=False)[0]
        query, key, value = self.qkv(tokens).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        if self.how == "by hand":
            mixed = torch.softmax(query @ key.mT / (WIDTH // HEADS) ** 0.5, -1) @ value
        else:
            mixed = F.scaled_dot_product_attention(query, key, value)
        return tokens + self.proj(mixed.transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    """A class token, 3x4 patches, and two blocks."""

    def __init__(self, how="fused"):
        super().__init__()
        self.stem, self.blocks = nn.Conv2d(3, WIDTH, 4, 4), nn.ModuleList([Block(how), Block(how)])
        self.extra, self.at = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Parameter(torch.randn(1, COUNT, WIDTH))
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, image):
        tokens = self.stem(image).flatten(2).mT
        tokens = torch.cat([self.extra.expand(len(image), -1, -1), tokens], 1) + self.at
        for block in self.blocks:
            tokens = block(tokens)
        return self.head(tokens.mean(1))


def by_loops(network, image, replaced=None):
    """The output for one image, and the attention of all blocks and heads as lists of rows."""
    tokens = torch.cat([network.extra[0], network.stem(image[None])[0].flatten(1).T]) + network.at[0]
    every = []
    for number, block in enumerate(network.blocks):
        size = WIDTH // HEADS
        joined, projected = [], tokens @ block.qkv.weight.T + block.qkv.bias
        for head in range(HEADS):
            query, key, value = (projected[:, (i * HEADS + head) * size :][:, :size] for i in range(3))
            scores = query @ key.T / size**0.5
            weights = scores.exp() / scores.exp().sum(1, keepdim=True)
            every.append(weights)
            if replaced is not None and replaced[:2] == (number, head):
                weights = replaced[2]
            joined.append(weights @ value)
        tokens = tokens + torch.cat(joined, 1) @ block.proj.weight.T + block.proj.bias
    return network.head(tokens.mean(0)), every


def stand_in(mean, by):
    """The replacement of a head, pair by pair."""
    if by == "mean":
        return mean
    if by == "uniform":
        return torch.full_like(mean, 1 / COUNT)
    cells = list(itertools.product(*map(range, SIDES)))
    sums = {}
    for (q, at), (k, to) in itertools.product(enumerate(cells, 1), repeat=2):
        sums.setdefault((to[0] - at[0], to[1] - at[1]), []).append(float(mean[q, k]))
    peak = max(sums, key=lambda away: sum(sums[away]))
    result = mean.clone()
    for q, at in enumerate(cells, 1):
        row = torch.zeros(COUNT, dtype=mean.dtype)
        for k, to in enumerate(cells, 1):
            away = (to[0] - at[0], to[1] - at[1])
            near = tuple(min(max(a + d, 0), n - 1) for a, d, n in zip(at, peak, SIDES, strict=True))
            row[k] = sum(sums[away]) / len(sums[away]) if by == "position" else float(to == near)
        result[q, 1:] = row[1:] / row.sum() * mean[q, 1:].sum()
    return result


@pytest.fixture(scope="module")
def images():
    return torch.randn(7, 3, 12, 16, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
@pytest.mark.parametrize("how", ["by hand", "fused", "module"])
@pytest.mark.parametrize("by", ["position", "shift", "mean", "uniform"])
def test_replacing_a_head_changes_what_a_loop_says(by, how, images):
    torch.manual_seed(0)
    network = Transformer(how).eval()
    before = network(images)
    report = heads(network, images, replace=by)
    assert torch.equal(network(images), before)
    runs = [by_loops(network, image)[1] for image in images[::2]]
    for block, head in itertools.product(range(2), range(HEADS)):
        mean = torch.stack([run[block * HEADS + head] for run in runs]).mean(0)
        effect = report.layers[block].heads[head].replaced
        assert effect.by == by
        for kind, change, error in (
            (by, effect.change, effect.change_error),
            ("uniform", effect.uniform, effect.uniform_error),
        ):
            moved = []
            for image in images[1::2]:
                plain, forced = (
                    by_loops(network, image)[0],
                    by_loops(network, image, (block, head, stand_in(mean, kind)))[0],
                )
                moved.append(float((forced - plain).norm() / plain.norm()))
            average = sum(moved) / 3
            assert change == pytest.approx(average, rel=1e-4, abs=1e-6)
            assert error == pytest.approx((sum((x - average) ** 2 for x in moved) / 2 / 3) ** 0.5, rel=1e-3, abs=1e-6)
            assert change > 1e-3


def test_a_head_that_ignores_the_image_loses_nothing_to_its_mean(images):
    torch.manual_seed(0)
    network = Transformer().eval()
    for block in network.blocks:
        block.qkv.weight.data[: 2 * WIDTH] = 0
    for layer in heads(network, images, replace="mean").layers:
        assert all(head.replaced.change < 1e-6 for head in layer.heads)


class Reordered(Transformer):
    """Tokens in another order than the grid's."""

    def forward(self, image):
        tokens = (self.stem(image).flatten(2).mT)[:, torch.arange(11, -1, -1)]
        tokens = torch.cat([self.extra.expand(len(image), -1, -1), tokens], 1) + self.at
        return self.head(self.blocks[1](self.blocks[0](tokens)).mean(1))


def test_a_layer_in_another_order_is_measured_but_not_replaced(images):
    torch.manual_seed(0)
    report = heads(Reordered().eval(), images, replace="position")
    assert "not replaced: its tokens are in another order" in " ".join(str(report).split())
    for layer in report.layers:
        assert any("another order" in note for note in layer.notes)
        assert layer.heads
        assert all(head.replaced is None for head in layer.heads)


@pytest.mark.parametrize(
    ("count", "by", "said"), [(3, "mean", "needs 4 images"), (4, "median", "replace='median' is unknown")]
)
def test_what_cannot_be_replaced_is_refused(count, by, said, images):
    with pytest.raises(UsageError, match=said):
        heads(Transformer().eval(), images[:count], replace=by)


def test_images_of_a_shuffled_loader_are_drawn_once(images):
    torch.manual_seed(0)
    network = Transformer().eval()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images), 3, shuffle=True)
    for layer in heads(network, loader, replace="position").layers:
        assert all(head.replaced is not None for head in layer.heads)


def test_the_command_prints_the_effect_beside_the_control(images, tmp_path):
    torch.manual_seed(0)
    network = Transformer().eval()
    torch.save(network.state_dict(), tmp_path / "network.pt")
    np.save(tmp_path / "images.npy", images.numpy())
    call = ["heads", str(tmp_path / "network.pt"), "--inputs", str(tmp_path / "images.npy"), "--replace", "shift"]
    call += ["--arch", f"{__file__}:Transformer"]
    result = CliRunner().invoke(main, [*call, "--format", "json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)["layers"][0]["heads"][1]["replaced"]
    effect = heads(network, images, replace="shift").layers[0].heads[1].replaced
    assert told["by"] == "shift"
    assert told["change"] == pytest.approx(effect.change, rel=1e-4)
    assert f"{effect.change:.2e}" in CliRunner().invoke(main, [*call]).stdout
