"""The causal column of the atlas, and the likeness of heads of different networks, on cases whose answers are known."""

import numpy as np
import pytest
import torch
from torch import nn

from conv2attn import heads
from conv2attn.lab.atlas_likeness import correlations, likeness, tables_of
from conv2attn.lab.atlas_page import likeness_table, loss_table
from conv2attn.lab.atlas_replacing import losses, replace_heads
from conv2attn.span import LayerFacts

SIDES, COUNT, WIDTH = (4, 5), 20, 8


class Attention(nn.Module):
    """Head 0 reads by displacement on a torus, mostly the token to its right; head 1 by content and a bias."""

    def __init__(self, content, bias):
        super().__init__()
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.content, self.bias = content, bias
        right = torch.arange(COUNT).reshape(SIDES).roll(-1, 1).flatten()
        self.register_buffer("moved", nn.functional.one_hot(right, COUNT).float())

    def forward(self, tokens):
        query, key, value = self.qkv(tokens).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        by_content = self.content * query[:, 1] @ key[:, 1].mT + self.bias * self.moved.mT
        scores = torch.stack([6 * self.moved.expand(len(tokens), -1, -1), by_content], 1)
        return tokens + self.proj((torch.softmax(scores, -1) @ value).transpose(1, 2).flatten(2))


class Planted(nn.Module):
    """A grid of 4x5 tokens and one layer of both heads."""

    def __init__(self, content=6.0, bias=0.0):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, WIDTH, 4, 4), nn.Linear(WIDTH, 5)
        self.attention = Attention(content, bias)

    def forward(self, image):
        return self.head(self.attention(self.stem(image).flatten(2).mT).flatten(1).unflatten(1, (COUNT, -1)).amax(1))


@pytest.fixture(scope="module")
def replaced():
    """The report on the planted network, and its document with what replacing costs."""
    torch.manual_seed(0)
    network, images = Planted().eval(), torch.randn(8, 3, 16, 20)
    report = heads(network, images)
    return network, images, replace_heads(network, images, report)


def test_a_positional_head_costs_nothing_and_a_head_of_content_costs(replaced):
    """The planted heads: one is its table exactly, one is not, and has its kind decided by the loss."""
    _, _, body = replaced
    positional, content = body["layers"][0]["heads"]
    for by in ("position", "mean"):
        assert max(positional["replaced"][by]) < 1e-5
        assert min(content["replaced"][by]) > 1e-2
    assert min(positional["replaced"]["uniform"]) > 1e-2
    assert (positional["kind"], content["kind"]) == ("shift", "content")
    loss = losses(body)
    assert loss.keys() == {"first"}
    assert (loss["first"]["heads"], loss["first"]["kept"]) == (2, 1)
    assert loss["first"]["at once"]["position"] == pytest.approx(content["replaced"]["position"], rel=1e-3)
    half = [x / 2 for x in content["replaced"]["mean"]]
    assert loss["first"]["alone"]["mean"] == pytest.approx(half, rel=1e-3, abs=1e-5)
    row = loss_table([{"name": "Planted", "losses": loss}]).splitlines()[2]
    assert row.startswith("| Planted | first | alone | 1 of 2 | ")


def test_costs_are_those_of_the_command(replaced):
    network, images, body = replaced
    for by in ("position", "shift", "mean", "uniform"):
        for head, document in zip(
            heads(network, images, replace=by).layers[0].heads, body["layers"][0]["heads"], strict=True
        ):
            changes = document["replaced"][by]
            assert sum(changes) / len(changes) == pytest.approx(head.replaced.effect.change, rel=1e-4, abs=1e-6)
            assert document["kind"] == head.kind


def test_a_head_that_loses_little_with_what_varies_is_not_of_content():
    torch.manual_seed(0)
    network, images = Planted(content=0.5, bias=2.0).eval(), torch.randn(8, 3, 16, 20)
    body = replace_heads(network, images, heads(network, images))
    head = heads(network, images, replace="mean").layers[0].heads[1]
    assert 0.1 < head.replaced.lost < 0.5
    assert body["layers"][0]["heads"][1]["kind"] == head.kind == "mixed"


def test_a_model_whose_heads_are_not_replaced_has_no_row():
    assert losses({"layers": [{"name": "a", "heads": [{"replaced": None}]}], "together": None}) == {}
    assert loss_table([{"name": "a", "losses": {}}]) == likeness_table({}) == ""


def test_tables_are_means_over_the_pairs_of_a_displacement():
    """The planted error, a mean over all queries, falls off where fewer queries have the displacement."""
    shift = torch.eye(30).roll(1, 1)
    shift[-1] = shift[:-1].mean(0)
    (layer,) = heads({"a": torch.stack([torch.full((30, 30), 1 / 30), shift])[None]}, grid=(30,)).layers
    even, moved = tables_of(layer)
    assert even == pytest.approx([1 / 30] * 49)
    assert moved[25] == pytest.approx(1)
    assert max(moved[:24]) == pytest.approx(1 / 29 / 6)  # one of the six pairs at -24
    assert tables_of(heads({"a": torch.full((1, 2, 24, 24), 1 / 24)}, grid=(24,)).layers[0]) is None
    assert tables_of(LayerFacts("unread")) is None


def model(name, trained, tables):
    """A model of one layer on a line."""
    return {
        "model": name,
        "trained": trained,
        "layers": [{"grid": [30], "tables": tables}, {"grid": [], "tables": None}],
    }


def test_likeness_is_the_largest_correlation_beside_that_with_twins():
    one, other, none = [0.0, 1, 0, 0], [0.0, 0, 3, 0], [1.0, 1, 1, 1]
    models = [model("a", True, [one, other]), model("a", False, [none, none])]
    models += [model("b", True, [[5.0, 7, 5, 5]]), model("b", False, [one])]
    found = likeness(models)["lines"]
    apart = -1 / 3  # the correlation of two tables whose peaks are apart
    assert found["trained"] == pytest.approx({"a": (1 + apart) / 2, "b": 1})
    assert found["twins"] == pytest.approx({"a": (1 + apart) / 2, "b": 0})
    assert found["comparisons"] == 2 + 2 + 2 + 2
    table = likeness_table({"lines": found})
    assert "| lines | a, b | 8 | 0.67 ± 0.33 (2) | 0.17 ± 0.17 (2) | 0.50 ± 0.50 (2) |" in table
    assert likeness(models[:2]) == {}


def test_correlations_are_those_of_numpy():
    first, second = torch.randn(3, 9).double().numpy(), torch.randn(2, 9).double().numpy()
    assert correlations(first, second) == pytest.approx(np.corrcoef(first, second)[:3, 3:])
