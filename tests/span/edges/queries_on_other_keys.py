"""Queries that are not the keys: pooled keys, strided queries, cross-attention. In whole cells, or unsupported."""

from itertools import product

import numpy as np
import pytest
import torch
from attentions import OFFSETS
from torch import nn

from conv2attn import check_span, heads
from conv2attn.models.capture import capture
from conv2attn.verdicts import Verdict


def reads(sites, keys, offsets=OFFSETS):
    """Heads (heads, queries, keys) that read the key at `site + offset`, the nearest one where that is off the grid."""
    attention = np.zeros((len(offsets), len(sites), keys[0] * keys[1]))
    for head, offset in enumerate(offsets):
        for query, site in enumerate(sites):
            row, column = (min(max(s + o, 0), side - 1) for s, o, side in zip(site, offset, keys, strict=True))
            attention[head, query, row * keys[1] + column] = 1
    return attention


def pooled(queries, cell):
    """The cell of each query, row-major."""
    return [(i // cell, j // cell) for i, j in product(*map(range, queries))]


def strided(keys, step):
    """The key of each query, row-major."""
    return [(i, j) for i, j in product(range(0, keys[0], step), range(0, keys[1], step))]


CASES = [
    (pooled((8, 12), 2), (4, 6), (8, 12)),
    (pooled((8, 12), 2), (4, 6), (4, 6)),
    (pooled((12, 12), 4), (3, 3), None),
    (strided((8, 6), 2), (8, 6), (8, 6)),
    (strided((7, 7), 2), (7, 7), None),
    (strided((9, 9), 3), (9, 9), None),
]


@pytest.mark.parametrize(("sites", "keys", "grid"), CASES)
def test_shifts_between_cells_hold_and_a_head_beside_its_cell_is_refuted(sites, keys, grid):
    attention = reads(sites, keys)
    report = check_span(attention, grid=grid)
    assert (report.verdict, report.rows[0].grid) == (Verdict.HOLDS, keys)
    attention[3] = reads(sites, keys, [(2, 2)])[0]
    assert check_span(attention, grid=grid).verdict is Verdict.REFUTED


@pytest.mark.parametrize(("sites", "keys", "grid"), CASES)
def test_heads_are_read_in_cells(sites, keys, grid):
    (layer,) = heads(reads(sites, keys), grid=grid).layers
    assert [head.peak for head in layer.heads] == OFFSETS
    assert layer.grid == keys


def test_a_class_token_among_queries_and_keys():
    plain = reads(pooled((8, 8), 2), (4, 4))
    whole = np.zeros((9, 65, 17))
    whole[:, 0, 0], whole[:, 1:, 1:] = 1, plain
    assert check_span(whole, extra_tokens=1).verdict is Verdict.HOLDS
    assert check_span(np.roll(whole, 1, -1), extra_tokens=1).verdict is Verdict.REFUTED


@pytest.mark.parametrize("queries", [10, 24, 48])
def test_without_a_common_grid_it_is_unsupported(queries):
    attention = np.full((2, queries, 16), 1 / 16)
    assert check_span(attention).verdict is heads(attention).verdict is Verdict.UNSUPPORTED


def test_cross_attention_on_a_square_grid():
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    seen = capture(layer, (torch.randn(1, 16, 8), torch.randn(1, 64, 8), torch.randn(1, 64, 8)))
    report = check_span(seen)
    assert report.verdict is Verdict.REFUTED
    assert "every key in 2 of 8x8" in report.to_text()


class SpatialReduction(nn.Module):
    """The attention of PVT and SegFormer: keys and values are pooled by a strided convolution."""

    num_heads = 2

    def __init__(self):
        super().__init__()
        self.reduce, self.query, self.key_value = nn.Conv2d(8, 8, 4, 4), nn.Linear(8, 8), nn.Linear(8, 16)

    def forward(self, image):
        cells = self.reduce(image).flatten(2).mT
        key, value = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.key_value(cells).chunk(2, -1))
        query = self.query(image.flatten(2).mT).unflatten(-1, (2, 4)).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(query, key, value)


def test_pooled_keys_of_spatial_reduction():
    network, images = SpatialReduction(), torch.randn(2, 8, 8, 12)
    assert [tuple(each.shape) for each in capture(network, images).values()] == [(2, 2, 96, 6)]
    assert check_span(capture(network, images), grid=(8, 12), condition="joint").verdict is Verdict.REFUTED
    (layer,) = heads(network, images, grid=(8, 12)).layers
    assert (layer.grid, layer.convolutions) == ((2, 3), ())
    assert all(head.relative + head.absolute + head.content == pytest.approx(1) for head in layer.heads)
