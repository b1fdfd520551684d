"""Layers of a network that attend within windows, or on grids of different resolution: `--grid` once, and all said."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from attentions import OFFSETS, hard
from schemas import entries, nearly
from torch import nn

from conv2attn import check_span, heads
from conv2attn.networks.reading import Windows
from conv2attn.span import HeadsReport, rows_of
from conv2attn.span.graded_facts.measuring import facts_of
from conv2attn.theory.basis import AttentionGrid, Sites
from conv2attn.verdicts import Verdict

SAID = "in windows of 4x4: measured at the places of its windows in the image; check-span judges one window"


class WindowAttention(nn.Module):
    """Self-attention within windows of so many pixels a side, or all of the image."""

    num_heads = 2

    def __init__(self, window_size):
        super().__init__()
        self.window_size = (window_size, window_size)

    def forward(self, image):
        side = self.window_size[0]
        windows = image.unfold(2, side, side).unfold(3, side, side).permute(0, 2, 3, 4, 5, 1)
        tokens = windows.reshape(-1, side * side, image.shape[1]).unflatten(-1, (2, -1)).transpose(1, 2)
        nn.functional.scaled_dot_product_attention(tokens, tokens, tokens)
        return image


class Hierarchy(nn.Module):
    """Attention on the image, then on it pooled."""

    def __init__(self, window_size=None):
        super().__init__()
        self.first = WindowAttention(window_size) if window_size else nn.MultiheadAttention(4, 2, batch_first=True)
        self.second = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, image):
        for layer in (self.first, self.second):
            tokens = image.flatten(2).mT
            layer(image) if isinstance(layer, WindowAttention) else layer(tokens, tokens, tokens)
            image = nn.functional.avg_pool2d(image, 2)
        return image


@pytest.mark.parametrize(("side", "windows"), [(4, True), (8, False)])
def test_a_windowed_layer_says_so(side, windows):
    network, images = Hierarchy(side), torch.randn(2, 4, 8, 8)
    report = heads(network, images)
    assert [SAID in layer.notes for layer in report.layers] == [windows, False]
    assert [SAID in row.notes for row in check_span(network, example_input=images).rows] == [windows, False]


@pytest.mark.parametrize("sides", [(6, 8), (5, 7)])
def test_heads_in_windows_have_the_facts_of_heads_that_are_masked_elsewhere(sides):
    """The last windows may be padded, by tokens that no head attends to."""
    count, whole = math.prod(sides), np.full((6, 8), -1)
    whole[: sides[0], : sides[1]] = np.arange(count).reshape(sides)
    places = whole.reshape(2, 3, 2, 4).swapaxes(1, 2).reshape(4, 12)
    random, masked = np.random.default_rng(0), np.zeros((3, 2, count, count))
    attention = random.dirichlet(np.ones(12), (3, 4, 2, 12)) * (places >= 0)[None, :, None, None]
    attention /= attention.sum(-1, keepdims=True)
    for window, part in enumerate(places):
        real = part[part >= 0]
        masked[:, :, real[:, None], real] = attention[:, window][:, :, part >= 0][..., part >= 0]
    windows, matrices = (
        Windows(places, AttentionGrid(sides, Sites.everywhere(2))),
        torch.from_numpy(random.standard_normal((2, 3, 4))),
    )
    inside = facts_of(rows_of("layer", attention.reshape(12, 2, 12, 12), (3, 4)), windows, (matrices, None))
    dense = facts_of(rows_of("layer", masked, sides), None, (matrices, None))
    first, second = (HeadsReport((facts,)).to_dict() for facts in (inside, dense))
    assert entries(first) == nearly(second, rel=1e-5, abs=1e-8)
    assert np.allclose(inside.mass, dense.mass)


def test_the_norm_of_a_layer_is_without_the_padding_of_its_windows():
    random, places = np.random.default_rng(0), np.array([[0, 1, 2, -1], [3, 4, 5, -1]])
    attention, matrices = random.dirichlet(np.ones(4), (2, 2, 4)), torch.from_numpy(random.standard_normal((2, 3, 5)))
    windows = Windows(places, AttentionGrid((2, 3), Sites.everywhere(2)))
    (fact, *_) = facts_of(rows_of("layer", attention, (4,)), windows, (matrices, None)).convolutions
    lengths = [
        sum(np.linalg.norm(np.tensordot(attention[window, :, query, key], matrices, 1)) for key in range(3))
        for window in range(2)
        for query in range(3)
    ]
    assert fact.norm == pytest.approx(max(lengths), rel=1e-9)


@pytest.mark.rotated
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("sides", [(3, 4), (1, 4), (9,), (2, 1, 3)])
@pytest.mark.parametrize("times", [2, 3])
def test_one_grid_serves_layers_of_other_resolutions(sides, times, turned):
    grids = [sides, tuple(times * side for side in sides)][:: -1 if turned else 1]
    offsets = list(product((0, 1), repeat=len(sides)))
    layers = {str(place): hard(grid, offsets) for place, grid in enumerate(grids)}
    report = check_span(layers, offsets=offsets, grid=grids[0], condition="per-query")
    assert [row.grid for row in report.rows] == [layer.grid for layer in heads(layers, grid=grids[0]).layers] == grids
    assert {row.verdict for row in report.rows} == {Verdict.HOLDS}
    said = [[note for note in row.notes if "inferred" in note] for row in report.rows]
    assert said == [[], [f"grid {'x'.join(map(str, grids[1]))} inferred from another layer's"]]


def test_each_layer_has_its_own_number_of_leading_tokens():
    behind = np.pad(hard((3, 4), OFFSETS), ((0, 0), (1, 0), (1, 0)))
    behind[:, 0, 0] = 1
    report = check_span({"plain": hard((3, 4), OFFSETS), "class": behind}, grid=(3, 4), extra_tokens={"class": 1})
    assert [row.verdict for row in report.rows] == [Verdict.HOLDS] * 2
