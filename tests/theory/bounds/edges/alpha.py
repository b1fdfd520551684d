"""Formats and thresholds of alpha: against the definitions, and against softmaxes really computed."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from flint import arb, ctx

from conv2attn.theory.bounds import (
    FORMATS,
    auto_alpha,
    down,
    one_hot_threshold,
    target_rounds_to_one_threshold,
    up,
)
from conv2attn.theory.bounds.claimed import BALL_PRECISION

DTYPES = {name: getattr(torch, name) for name, form in FORMATS.items() if not form.cuts}
SIDES = (7, 5)


def weights(alpha, name, target=(3, 1)):
    """Attention of one head over a grid, as torch computes and stores it."""
    rows, columns = torch.meshgrid(*map(torch.arange, SIDES), indexing="ij")
    squared = (rows - target[0]) ** 2 + (columns - target[1]) ** 2
    inner = torch.float64 if name == "float64" else torch.float32
    scores = -torch.tensor(alpha, dtype=DTYPES[name]).to(inner) * squared.to(inner)
    return torch.softmax(scores.flatten(), 0).to(DTYPES[name]).double(), squared.flatten()


@pytest.mark.parametrize("name", DTYPES)
def test_formats_are_those_of_torch(name):
    info, form = torch.finfo(DTYPES[name]), FORMATS[name]
    assert form.unit_roundoff == info.eps / 2
    assert form.smallest_normal == info.tiny
    assert form.largest == info.max
    assert form.smallest_subnormal == info.tiny * info.eps


def test_cut_formats_have_the_range_of_float32():
    for name, largest in (("tf32", 2.0**128 - 2.0**117), ("bf32", 2.0**128 - 2.0**120)):
        assert FORMATS[name].smallest_normal == torch.finfo(torch.float32).tiny
        assert FORMATS[name].largest == largest


def test_automatic_alphas():
    automatic = {name: auto_alpha(name) for name in FORMATS}
    assert automatic == {"float64": 1024, "float16": 64} | dict.fromkeys(["float32", "bfloat16", "tf32", "bf32"], 128)


@pytest.mark.parametrize("name", DTYPES)
def test_one_hot_threshold_is_where_softmax_becomes_one_hot(name):
    threshold = one_hot_threshold(name)
    attention, squared = weights(threshold, name)
    assert (attention == (squared == 0)).all()
    attention, squared = weights(threshold - 0.75, name)
    assert not (attention == (squared == 0)).all()


def test_flushing_needs_less():
    assert torch.set_flush_denormal(True)
    try:
        attention, squared = weights(one_hot_threshold("float32", flush_to_zero=True), "float32")
        assert (attention == (squared == 0)).all()
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("name", DTYPES)
def test_target_rounds_to_one_in_any_order(name):
    inner = np.float64 if name == "float64" else np.float32
    ticks = np.arange(-60, 61)
    squared = np.sort((ticks[:, None] ** 2 + ticks**2).ravel()).astype(inner)

    def share(alpha, order):
        with np.errstate(under="ignore"):
            terms = np.exp(inner(-alpha) * squared)
        return torch.tensor(inner(1) / np.add.accumulate(terms[order])[-1]).to(DTYPES[name])

    threshold, random = target_rounds_to_one_threshold(name, 2, 2.0), np.random.default_rng(0)
    smallest_first = np.arange(len(squared))[::-1]
    for order in (smallest_first, smallest_first[::-1], *(random.permutation(len(squared)) for _ in range(5))):
        assert share(threshold, order) == 1
    assert share(threshold - 0.25, smallest_first) < 1
    assert weights(threshold, name)[0].max() == 1


def test_directed_rounding_of_balls():
    with ctx.workprec(BALL_PRECISION):
        third, tiny = arb(1) / 3, (-(arb(10) ** 9)).exp()
        assert down(third) < Fraction(1, 3) < up(third) == math.nextafter(down(third), 1)
        assert (down(tiny), up(tiny), up(-tiny)) == (0.0, math.ulp(0.0), 0.0)
        assert (up(1 / tiny), down(1 / tiny)) == (math.inf, math.nextafter(math.inf, 0))
        assert (up(arb(2) ** -5000), down(arb(2) ** -5000)) == (math.ulp(0.0), 0.0)
        assert (up(arb(2) ** 5000), down(arb(2) ** 5000)) == (math.inf, math.nextafter(math.inf, 0))
        assert (up(arb(0)), down(arb(0)), up(arb(2) ** 1023)) == (0.0, 0.0, 2.0**1023)
        assert (up(arb("nan")), down(arb("nan"))) == (math.inf, -math.inf)


def test_round_up_to_a_format():
    for name, dtype in DTYPES.items():
        for value in (1.0, 1.1, 2.0, 103.97207, math.nextafter(2.0, 3)):
            rounded = FORMATS[name].round_up(value)
            assert torch.tensor(rounded, dtype=torch.float64).to(dtype).double() == rounded >= value
            below = torch.nextafter(torch.tensor(rounded, dtype=torch.float64).to(dtype), torch.tensor(0, dtype=dtype))
            assert below.double() < value
