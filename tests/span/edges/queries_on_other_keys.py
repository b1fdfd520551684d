"""Queries that are not the keys: pooled keys, strided queries, cross-attention. In whole cells, or undecided."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from attentions import OFFSETS
from torch import nn

from conv2attn import capture, check_span, heads, recover
from conv2attn.cli.attention_files import in_words
from conv2attn.networks.reading import replay_result
from conv2attn.span import grid_of
from conv2attn.span.recover import nearest_in
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
    (pooled((6, 8), 2), (3, 4), (6, 8)),
    (pooled((6, 8), 2), (3, 4), (3, 4)),
    (pooled((12, 12), 4), (3, 3), None),
    (strided((8, 6), 2), (8, 6), (8, 6)),
    (strided((7, 7), 3), (7, 7), None),
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
    plain = reads(pooled((6, 6), 2), (3, 3))
    whole = np.zeros((9, 37, 10))
    whole[:, 0, 0], whole[:, 1:, 1:] = 1, plain
    assert check_span(whole, extra_tokens=1).verdict is Verdict.HOLDS
    assert check_span(np.roll(whole, 1, -1), extra_tokens=1).verdict is Verdict.REFUTED


@pytest.mark.parametrize("queries", [10, 24, 48])
def test_without_a_common_grid_it_is_undecided(queries):
    attention = np.full((2, queries, 16), 1 / 16)
    assert check_span(attention).verdict is heads(attention).verdict is Verdict.UNDECIDED


def test_cross_attention_on_a_square_grid():
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    seen = capture(layer, (torch.randn(1, 16, 8), torch.randn(1, 64, 8), torch.randn(1, 64, 8)))
    report = check_span(seen)
    assert report.verdict is Verdict.REFUTED
    assert "the 8x8 keys with a stride of 2" in report.to_text()


class SpatialReduction(nn.Module):
    """The attention of PVT and SegFormer: keys and values are pooled by a strided convolution, or queries skip keys."""

    num_heads = 2

    def __init__(self, cell, stride):
        super().__init__()
        self.stride, self.sr = stride, nn.Conv2d(8, 8, cell, cell)
        self.q, self.kv, self.proj = nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(8, 8)

    def forward(self, image):
        cells = self.sr(image).flatten(2).mT
        key, value = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.kv(cells).chunk(2, -1))
        asking = image[..., :: self.stride, :: self.stride].flatten(2).mT
        query = self.q(asking).unflatten(-1, (2, 4)).transpose(1, 2)
        found = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.proj(found.transpose(1, 2).flatten(2))


@pytest.mark.parametrize(("cell", "stride", "keys"), [(4, 1, (2, 3)), (2, 1, (4, 6)), (1, 2, (8, 12))])
def test_the_nearest_convolution_acts_on_the_keys_and_serves_every_query(cell, stride, keys):
    torch.manual_seed(0)
    network, images = SpatialReduction(cell, stride), torch.randn(2, 8, 8, 12)
    (attention,) = capture(network, images).values()
    assert check_span({"": attention}, grid=(8, 12), condition="joint").verdict is Verdict.REFUTED
    report = heads(network, images, grid=(8, 12))
    (layer,) = report.layers
    assert layer.grid == keys
    assert all(head.relative + head.absolute + head.content == pytest.approx(1) for head in layer.heads)
    with torch.no_grad():
        tokens = network.sr(images) if cell > 1 else images  # a map of each token is part of the matrices
    found, bias = layer.convolution(3), torch.from_numpy(layer.bias)
    unfolded = nn.functional.unfold(torch.eye(len(attention[0, 0, 0])).unflatten(1, keys)[:, None], 3, padding=1)
    taps = unfolded.unflatten(-1, keys).repeat_interleave(cell, 2).repeat_interleave(cell, 3)[..., ::stride, ::stride]
    taps = taps.flatten(2).permute(2, 0, 1).double()  # (queries, keys, taps)
    held = in_words(nearest_in(report, 3)[layer.name])
    module = eval(held["module"], vars(nn))
    module.load_state_dict(held["state"])
    expected = torch.einsum("qkt,nck,toc->nqo", taps, tokens.flatten(2).double(), torch.from_numpy(found.taps)) + bias
    torch.testing.assert_close(module(tokens).flatten(2).mT.double(), expected, atol=1e-5, rtol=1e-5)


def test_values_that_are_pooled_after_their_weights_have_no_matrices():
    network = SpatialReduction(4, 1)
    network.kv = nn.Sequential(network.kv, nn.LayerNorm(16))
    (layer,) = heads(network, torch.randn(1, 8, 8, 12)).layers
    assert layer.convolutions == ()
    assert {replay_result.VALUES_NOT_LINEAR, replay_result.MIXES_VALUES} & set(layer.notes)


SIDES = [(1,), (2,), (5,), (2, 3), (3, 3), (4, 2), (2, 3, 4), (2, 2, 2)]


@pytest.mark.rotated
@pytest.mark.parametrize("given", ["keys", "queries", "neither"])
@pytest.mark.parametrize("step", [1, 2, 3, 7])
@pytest.mark.parametrize("sides", SIDES)
def test_queries_stand_on_every_so_many_keys_or_in_a_cell_of_so_many(sides, step, given):
    large = tuple(side * step for side in sides)
    for keys, places in (
        (sides, [tuple(x // step for x in at) for at in np.ndindex(*large)]),
        (large, list(product(*(range(0, side, step) for side in large)))),
    ):
        queries = large if keys == sides else sides
        if given == "neither" and len(set(keys)) > 1:
            continue
        grid = {"keys": keys, "queries": queries, "neither": None}[given]
        found = grid_of("layer", len(places), math.prod(keys), grid, len(sides))
        assert (found.keys, found.queries, found.shape) == (keys, queries, (len(places), math.prod(keys)))
        assert list(product(*(found.site(axis).tolist() for axis in range(len(sides))))) == places
        for axis, side in enumerate(keys):
            away = [[key - site for key in range(side)] for site in found.site(axis).tolist()]
            assert found.displacement(axis).tolist() == away


@pytest.mark.parametrize("sides", [(9,), (3, 5), (2, 3, 4)])
def test_the_nearest_convolution_of_lines_planes_and_spaces_is_the_layer_of_its_axes(sides):
    torch.manual_seed(0)
    layer, count = nn.MultiheadAttention(8, 2, batch_first=True).eval(), math.prod(sides)
    tokens = torch.randn(2, count, 8)
    asked = {"example_input": (tokens, tokens, tokens), "grid": sides}
    (facts,), (found,) = heads(layer, **asked).layers, recover(layer, **asked).values()
    taps = torch.from_numpy(facts.convolution(3).taps)
    image, expected = tokens.mT.unflatten(-1, sides).double(), torch.zeros(2, 8, *sides).double()
    for tap, offset in zip(taps, product((-1, 0, 1), repeat=len(sides)), strict=True):
        for at in np.ndindex(*sides):
            key = tuple(np.add(at, offset).tolist())
            if all(0 <= x < side for x, side in zip(key, sides, strict=True)):
                expected[:, :, *at] += image[:, :, *key] @ tap.T
    assert type(found.module) is (nn.Conv1d, nn.Conv2d, nn.Conv3d)[len(sides) - 1]
    made = found.module(image.float()).double() - torch.from_numpy(facts.bias).reshape(-1, *[1] * len(sides))
    torch.testing.assert_close(made, expected, atol=1e-5, rtol=1e-5)
