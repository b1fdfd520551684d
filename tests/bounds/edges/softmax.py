"""Softmaxes and the means they weigh, as numpy and torch compute them, against 100-digit arithmetic."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch

from conv2attn.bounds import (
    EXP_ULPS,
    FORMATS,
    RoundingBound,
    computed_leak,
    hard_mixing_bound,
    one_hot_threshold,
    soft_mixing_bound,
    softmax_error,
    target_rounds_to_one_threshold,
)
from conv2attn.bounds.formats import accumulator_of
from conv2attn.errors import AlphaError

DTYPES = {name: getattr(torch, name) for name, form in FORMATS.items() if not form.cuts}


@pytest.fixture(autouse=True)
def _hundred_digits():
    with mpmath.workdps(100):
        yield


def inner_dtype(name):
    return getattr(torch, accumulator_of(name).name)


def exact_softmax(scores):
    powers = [mpmath.exp(mpmath.mpf(score)) for score in scores.tolist()]
    return [power / mpmath.fsum(powers) for power in powers]


def as_mpf(tensor):
    return [mpmath.mpf(x) for x in tensor.double().tolist()]


@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("library", [torch, np])
def test_exp_keeps_what_the_table_says(name, library):
    dtype = np.dtype(name).type
    arguments = -np.random.default_rng(0).uniform(0, 80, 2000).astype(dtype)
    values = torch.exp(torch.from_numpy(arguments)).numpy() if library is torch else np.exp(arguments)
    for argument, value in zip(arguments.tolist(), values, strict=True):
        ulps = abs(mpmath.mpf(float(value)) - mpmath.exp(mpmath.mpf(argument))) / mpmath.mpf(float(np.spacing(value)))
        assert ulps <= EXP_ULPS["softmax"]


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize(("keys", "spread"), [(1, 1.0), (7, 0.1), (49, 3.0), (200, 30.0)])
def test_softmax_error(name, keys, spread):
    random = torch.Generator().manual_seed(keys)
    scores = (spread * torch.randn(keys, generator=random)).to(inner_dtype(name))
    scores -= scores.max()
    computed = torch.softmax(scores, 0).to(DTYPES[name])
    exact = exact_softmax(scores.double())
    error = mpmath.fsum(abs(c - e) for c, e in zip(as_mpf(computed), exact, strict=True))
    assert error <= softmax_error(keys, name)

    inputs = (torch.rand(keys, generator=random) * 2 - 1).to(DTYPES[name])
    mean = (computed.to(inner_dtype(name)) * inputs.to(inner_dtype(name))).sum().to(DTYPES[name])
    truth = mpmath.fsum(p * x for p, x in zip(exact, as_mpf(inputs), strict=True))
    bound = soft_mixing_bound(keys, name)
    assert abs(mpmath.mpf(mean.item()) - truth) <= bound.factor + bound.absolute


def test_score_errors_are_counted():
    scores = torch.linspace(-3, 0, 20, dtype=torch.float64)
    moved = scores + 0.01 * (-1.0) ** torch.arange(20)
    error = mpmath.fsum(abs(a - b) for a, b in zip(exact_softmax(scores), exact_softmax(moved), strict=True))
    assert softmax_error(20, "float64") < error <= softmax_error(20, "float64", score_error=0.01)


def test_nothing_is_claimed_when_the_sum_may_be_lost():
    assert softmax_error(2**24 - 1, "float32") == math.inf


@pytest.mark.parametrize("name", DTYPES)
def test_almost_hard_heads_read_the_target(name):
    first, last = target_rounds_to_one_threshold(name), one_hot_threshold(name)
    ticks = torch.arange(-3, 4)
    squared = (ticks[:, None] ** 2 + ticks**2).flatten()
    inner = inner_dtype(name)
    for alpha in np.linspace(first, last, 6):
        alpha = FORMATS[name].round_up(float(alpha))
        attention = torch.softmax(-torch.tensor(alpha, dtype=inner) * squared.to(inner), 0).to(DTYPES[name])
        for target in (1.0, 0.0, 2.0**-10):
            inputs = torch.where(squared == 0, target, 1.0).to(inner)
            error = abs(Fraction((attention.to(inner) * inputs).sum().to(DTYPES[name]).item()) - Fraction(target))
            bound = hard_mixing_bound(alpha, 2, name)
            assert error <= Fraction(bound.factor) + Fraction(bound.absolute)
            if target == 0:
                assert (error > 0) == (alpha < last)
    assert hard_mixing_bound(last, 2, name) == RoundingBound(0.0, 0.0)
    with pytest.raises(AlphaError, match="does not make the target's weight exactly 1"):
        hard_mixing_bound(first - 1, 2, name)


def test_tf32_rounds_what_it_mixes():
    assert hard_mixing_bound(128.0, 2, "tf32").factor >= 2.0**-10


def test_computed_leak_refuses_a_bad_alpha():
    for alpha in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(AlphaError, match="C2A130 alpha="):
            computed_leak(alpha, 2, "float32")
