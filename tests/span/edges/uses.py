"""Uses of the span: convolutions written with given heads, recovered from them, and counted in heads."""

import doctest
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from attentions import OFFSETS
from torch import nn

from conv2attn import convert, express, load, recover
from conv2attn.errors import UsageError
from conv2attn.models import attention_layers
from conv2attn.span import expression, fit_heads, head_offsets, profiles, redundant_heads
from conv2attn.theorem import fewest_heads
from conv2attn.verdicts import Verdict


def integers(module):
    """A layer with small integer weights, in float64, so that sums are exact."""
    module = module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randint(-4, 5, parameter.shape))
    return module


def image(*shape):
    return torch.randint(-4, 5, shape).double()


def test_express_writes_a_convolution_with_the_heads_of_another():
    heads, conv = convert(nn.Conv2d(1, 1, 3)).double(), integers(nn.Conv2d(3, 4, 3, padding=1, stride=2))
    with torch.no_grad():
        heads.encoding.center.copy_(heads.encoding.center.flip(0))
        heads.encoding.alpha.fill_(1024)
    written = express(conv, heads)
    x = image(2, 3, 9, 8)
    assert torch.equal(written(x), conv(x))


def test_express_says_what_heads_cannot_do():
    heads, conv = convert(nn.Conv2d(1, 1, 3)).double(), integers(nn.Conv2d(3, 4, 3))
    with torch.no_grad():
        heads.encoding.alpha.fill_(0.5)
    result = expression(conv, heads)
    assert result.condition.verdict is Verdict.REFUTED
    with torch.no_grad():
        heads.encoding.alpha.fill_(1024)
        heads.encoding.center[4] = 1.0
    assert expression(conv, heads).condition.verdict is Verdict.REFUTED
    conv.weight.data[:, :, 1, 1] = 0
    assert expression(conv, heads).condition.verdict is Verdict.HOLDS
    assert torch.equal(express(conv, heads)(x := image(1, 3, 6, 7)), conv(x))


def test_heads_given_as_an_array_are_fitted_as_those_of_a_layer():
    """Mixtures of shifts: with a neighbourhood on the grid the weights give the convolution, unless one is lost."""
    conv, grid = integers(nn.Conv2d(3, 4, (1, 3))), (3, 5)
    shares = np.array([[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 1]])
    shifted = np.zeros((3, 15, 15))
    for tap, column in enumerate((-1, 0, 1)):
        for query in range(15):
            shifted[tap, query, query - query % 5 + min(max(query % 5 + column, 0), 4)] = 1
    attention = np.einsum("ht,tqk->hqk", shares, shifted)
    found = fit_heads(conv, attention, grid=grid)
    assert found.condition.verdict is Verdict.HOLDS
    x = image(1, 3, *grid)
    tokens, bias = x.flatten(2)[0].numpy(), found.weights.bias.detach().numpy()
    computed = np.einsum("hqk,hoi,ik->oq", attention, found.weights.taps().detach().numpy(), tokens) + bias[:, None]
    assert np.array_equal(computed.reshape(4, *grid)[:, :, 1:-1], conv(x)[0].detach().numpy())
    assert fit_heads(conv, attention[:2], grid=grid).condition.verdict is Verdict.REFUTED
    with pytest.raises(UsageError, match="C2A504 a convolution of 1 axes, attention of 2"):
        fit_heads(nn.Conv1d(3, 4, 3), attention, grid=grid)


@pytest.mark.parametrize("seed", range(5))
def test_fewest_heads_construct_the_convolution(seed):
    torch.manual_seed(seed)
    conv = integers(nn.Conv2d(1 + seed % 2, 1 + seed // 2, 3))
    found = fewest_heads(conv)
    rank = int(np.linalg.matrix_rank(conv.weight.detach().flatten(2).flatten(0, 1).numpy()))
    assert found.free in (rank, rank + 1)
    assert all(sum(row) == 1 and min(row) >= 0 for row in found.patterns)
    floats = np.array([[float(Fraction(x)) for x in row] for row in found.patterns])
    taps = np.einsum("ht,hoi->oit", floats, found.matrices).reshape(conv.weight.shape)
    assert np.allclose(taps, conv.weight.detach().numpy(), atol=1e-10, rtol=0)


def test_heads_are_read():
    layer = convert(nn.Conv2d(1, 1, 3, padding=1))
    assert [reading.offset for reading in head_offsets(layer, grid=(5, 6))] == OFFSETS
    assert all(reading.spread == 0 for reading in head_offsets(layer, grid=(5, 6)))
    layer.encoding.alpha.data.fill_(0.5)
    soft = head_offsets(layer, grid=(5, 6))
    assert all(reading.offset is None for reading in soft)
    assert soft[4].peak == (0, 0)
    assert soft[4].center == pytest.approx((0, 0), abs=1e-9)


def test_redundant_heads_are_found_among_fractions():
    weights = np.random.default_rng(0).integers(1, 9, (3, 9, 9))
    heads = np.array([[[Fraction(int(x), int(row.sum())) for x in row] for row in head] for head in weights])
    mixed = (heads[0] + 2 * heads[1]) / 3
    assert redundant_heads(heads).removable == ()
    assert redundant_heads(np.stack([*heads, mixed])).removable == (3,)
    assert redundant_heads(np.stack([mixed, *heads[:2], heads[0]])).removable == (2, 3)


def test_redundant_heads_are_found():
    attention = convert(nn.Conv2d(1, 1, 3)).attention(sides=(5, 6))[0]
    square = np.zeros((3, 6, 6))
    square[0], square[1] = np.eye(6), np.eye(6)[::-1]
    square[2] = (square[0] + square[1]) / 2
    found = redundant_heads(square, grid=(6,))
    assert max(found.distances) < 1e-12
    assert found.removable == (2,)
    assert redundant_heads(square[:2], grid=(6,)).removable == ()
    assert attention.shape[0] == 9


def test_profiles_tell_one_convolution_from_a_mixture():
    layer = convert(nn.Conv2d(1, 1, 3, padding=2))
    assert profiles(layer, grid=(5, 6)).reads_as == "one convolution"
    layer.encoding.center.data[0] = 0.0
    assert profiles(layer, grid=(5, 6)).reads_as == "one sparse convolution"
    layer.encoding.alpha.data[:3] = 0.5
    assert profiles(layer, grid=(5, 6)).reads_as == "a mixture of 2 convolutions"


def test_the_examples_of_the_documentation_run(monkeypatch):
    root = Path(__file__).parents[3]
    monkeypatch.chdir(root)
    results = doctest.testfile(str(root / "docs" / "check-span.md"), module_relative=False)
    assert results.attempted >= 20
    assert results.failed == 0


@pytest.mark.parametrize("name", ["quadratic", "learned"])
def test_the_uses_work_on_the_trained_examples(name):
    root = Path(__file__).parents[3]
    for layer in attention_layers(load(root / "examples" / f"attention-{name}.pt")).values():
        assert [reading.head for reading in head_offsets(layer, grid=4)] == list(range(9))
        assert redundant_heads(layer, grid=4).removable == ()
        assert sorted(h for pattern in profiles(layer, grid=4).patterns for h in pattern.heads) == list(range(9))
        found = recover(layer, grid=4)
        assert 0 < found.share < 0.8
        heads = fewest_heads(found.module)
        assert (heads.hard, heads.free) == (9, 9)


def test_a_far_corner_that_one_query_reads_is_no_peak():
    heads = np.full((1, 49, 49), 0.5 / 49)
    heads[0, np.arange(49), np.maximum(np.arange(49) - 1, 0)] += 0.5
    heads[0, 0] = np.eye(49)[48]
    reading = head_offsets(heads, grid=(49,))[0]
    assert reading.peak == (-1,)
    assert reading.share == pytest.approx(heads[0, np.arange(1, 49), np.arange(48)].sum() / 49)


def test_a_sink_implements_no_offset():
    sink = np.zeros((1, 49, 49))
    sink[..., 48] = 1
    reading = head_offsets(sink)[0]
    assert reading.offset is None
    assert reading.share == pytest.approx(1 / 49)
    assert reading.center == pytest.approx((3, 3))


@pytest.mark.parametrize("seed", range(3))
def test_numbers_are_those_of_loops(seed):
    heads = np.random.default_rng(seed).dirichlet(np.ones(12) / 3, (2, 12))
    places = [(i, j) for i in range(3) for j in range(4)]
    for head, reading in zip(heads, head_offsets(heads, grid=(3, 4)), strict=True):
        mass = {}
        for q, at in enumerate(places):
            for k, key in enumerate(places):
                away = (key[0] - at[0], key[1] - at[1])
                mass[away] = mass.get(away, 0) + head[q, k] / 12
        center = [sum(m * d[a] for d, m in mass.items()) for a in (0, 1)]
        spread = sum(m * sum((d[a] - center[a]) ** 2 for a in (0, 1)) for d, m in mass.items()) ** 0.5
        assert reading.peak == max(mass, key=mass.get)
        assert reading.share == pytest.approx(max(mass.values()))
        assert (*reading.center, reading.spread) == pytest.approx((*center, spread))


def test_attention_at_random_is_no_convolution():
    heads = np.random.default_rng(0).dirichlet(np.ones(36), (2, 36))
    assert profiles(heads[:1]).reads_as == "not relative to position"
    assert profiles(heads).reads_as == "not relative to position"
    layer = convert(torch.nn.Conv2d(1, 1, 3, padding=2))
    assert profiles(layer, grid=(6, 6)).reads_as == "one convolution"
