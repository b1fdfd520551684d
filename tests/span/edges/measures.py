"""Graded facts equal plain loops, shares sum to 1, and no sampled difference exceeds its bound."""

import numpy as np
import pytest
import torch
from attentions import OFFSETS, hard, soft
from torch import nn

import conv2attn
from conv2attn.models.values import matrices_of
from conv2attn.span.facts import heads
from conv2attn.span.measures import kernel, masses, nearest, nearest_convolutions
from conv2attn.span.sources.reading import read_array

SIDES = (3, 4)
PLACES = [(i, j) for i in range(3) for j in range(4)]


def attention(images=3, extra=1, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(12 + extra) / 2, (images, 2, 12 + extra))


def rows(array, extra):
    return read_array("random", array, grid=SIDES, dimensions=2, extra_tokens=extra, memory_limit=10**6)


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("images", [1, 3])
def test_shares_and_spans_are_those_of_loops(images, extra):
    array = attention(images, extra)
    seen = masses(rows(array, extra))
    pixels = array[:, :, extra:, extra:]
    assert np.allclose(seen.shares.sum(0), 1)
    for head in range(2):
        own = pixels[:, head]
        mean, level = own.mean(0), own.mean()
        by = {}
        for q, at in enumerate(PLACES):
            for k, key in enumerate(PLACES):
                by.setdefault((key[0] - at[0], key[1] - at[1]), []).append(mean[q, k])
        flat = {d: np.mean(x) for d, x in by.items()}
        relative = sum(images * len(x) * (flat[d] - level) ** 2 for d, x in by.items())
        absolute = sum(images * (y - flat[d]) ** 2 for d, x in by.items() for y in x)
        content = ((own - mean) ** 2).sum()
        whole = ((own - level) ** 2).sum()
        assert seen.shares[:, head] == pytest.approx(np.array([relative, absolute, content]) / whole)
    stacked = np.concatenate([array[:, :, extra:].reshape(images, 2, -1)], 0).swapaxes(0, 1).reshape(2, -1)
    for offset, found in zip(OFFSETS, seen.spanned(tuple(OFFSETS)), strict=True):
        asked = np.zeros((images, 12, 12 + extra))
        for q, at in enumerate(PLACES):
            key = (at[0] + offset[0], at[1] + offset[1])
            if key in PLACES:
                asked[:, q, extra + PLACES.index(key)] = 1
        phi = np.linalg.lstsq(stacked.T, asked.ravel(), rcond=None)[0]
        assert found == pytest.approx(1 - ((asked.ravel() - phi @ stacked) ** 2).sum() / asked.sum())


@pytest.mark.parametrize("size", [1, 3])
def test_the_nearest_convolution_is_that_of_least_squares_and_its_bound_holds(size):
    array, rng = attention(2, 0), np.random.default_rng(1)
    matrices = rng.standard_normal((2, 3, 2))
    read = rows(array, 0)
    found = next(c for c in nearest_convolutions(read, masses(read), matrices) if c.size == size)
    layer = np.einsum("nhqk,hoi->nqoki", array, matrices)
    offsets = kernel(size, 1, 2)
    basis = np.zeros((len(offsets), 12, 12))
    for t, offset in enumerate(offsets):
        for q, at in enumerate(PLACES):
            key = (at[0] + offset[0], at[1] + offset[1])
            if key in PLACES:
                basis[t, q, PLACES.index(key)] = 1
    design = np.concatenate([basis.reshape(len(offsets), -1)] * 2, 1).T
    target = layer.transpose(0, 1, 3, 2, 4).reshape(2 * 144, -1)
    taps = np.linalg.lstsq(design, target, rcond=None)[0]
    assert np.allclose(found.taps.reshape(len(offsets), -1), taps)
    left = target - design @ taps
    assert found.share == pytest.approx(1 - (left**2).sum() / (target**2).sum())
    difference = layer - np.einsum("tqk,toi->qoki", basis, found.taps)
    assert np.abs(difference).sum((3, 4)).max() <= found.error <= 3 * np.abs(difference).sum((3, 4)).max()


def test_a_converted_network_is_read_as_what_it_is():
    conv = nn.Conv2d(2, 3, 3, padding=1)
    network = nn.Sequential(conv2attn.convert(conv))
    for report in (heads(network, torch.randn(2, 2, 6, 7)), heads(network, grid=(6, 7))):
        (layer,) = report.layers
        assert report.exit_code == 0
        assert layer.grid == (8, 9)
        assert [head.peak for head in layer.heads] == OFFSETS
        assert [head.peak_mass for head in layer.heads] == [1.0] * 9
        explained = {found.size: found for found in layer.convolutions}[3]
        assert explained.share == pytest.approx(1)
        assert explained.error < 1e-5
        taps = torch.from_numpy(explained.taps).permute(1, 2, 0).unflatten(-1, (3, 3))
        torch.testing.assert_close(taps.float(), conv.weight)


def test_attention_as_networks_return_it():
    report = heads((hard((5, 6), OFFSETS), soft((5, 6), 1.0)), grid=(5, 6))
    assert [layer.name for layer in report.layers] == ["layer 0", "layer 1"]
    assert [row.name for row in conv2attn.check_span((np.eye(9)[None],), 1).rows] == ["layer 0"]


@pytest.mark.parametrize("bias", [True, False])
def test_values_and_outputs_of_torch_s_own_layer(bias):
    layer = nn.MultiheadAttention(8, 2, bias=bias, batch_first=True).eval().double()
    nn.init.normal_(layer.in_proj_weight)
    if bias:
        nn.init.normal_(layer.in_proj_bias)
        nn.init.normal_(layer.out_proj.bias)
    x = torch.randn(1, 5, 8).double()
    computed, weights = layer(x, x, x, average_attn_weights=False)
    matrices, shift = matrices_of(nn.Sequential(layer), "0")
    made = torch.einsum("nhqk,nki,hoi->nqo", weights, x, matrices)
    made = made if shift is None else made + shift
    torch.testing.assert_close(made, computed)


@pytest.mark.parametrize(("images", "extra"), [(1, 0), (3, 0), (2, 1)])
def test_what_chance_explains_is_the_mean_over_shuffles(images, extra):
    rng, array = np.random.default_rng(2), attention(1, extra).repeat(images, 0)
    expected = masses(rows(array, extra))
    shuffled = [masses(rows(rng.permuted(array[:1], axis=-1), extra)) for _ in range(300)]
    offsets, matrices = tuple(OFFSETS), rng.standard_normal((2, 3, 2))
    for sampled, found in [
        ([each.shares[0] for each in shuffled], expected.relative_by_chance),
        ([[each.spanned(offsets).mean()] for each in shuffled], expected.spanned_by_chance(offsets).mean()),
        ([[nearest(each, matrices, 3, 2)[2]] for each in shuffled], nearest(expected, matrices, 3, 2)[3]),
    ]:
        error = np.std(sampled, 0) / len(shuffled) ** 0.5
        assert (np.abs(np.mean(sampled, 0) - found) <= 4 * error).all()
        assert (4 * error < 0.2 * np.mean(sampled, 0)).all()
