"""The formulas of the docstrings once more, in 100-digit arithmetic: constants too small to show on examples."""

import mpmath
import pytest

from conv2attn.bounds import (
    FORMATS,
    absolute_score_error,
    computed_leak,
    hard_mixing_bound,
    soft_mixing_bound,
    softmax_error,
    target_rounds_to_one_threshold,
)
from conv2attn.bounds.formats import accumulator_of, storage_of
from conv2attn.bounds.rounding import operand_error

mpf = mpmath.mpf


@pytest.fixture(autouse=True)
def _hundred_digits():
    with mpmath.workdps(400):
        yield


def rivals(alpha, dimensions):
    return mpmath.jtheta(3, 0, mpmath.exp(-alpha)) ** dimensions - 1


def just_above(bound, formula, slack=1e-13):
    return formula <= bound <= formula * (1 + slack) + mpf(2) ** -1073


def off_target(alpha, dimensions, name, ulps):
    """Mass and number of the computed off-target weights, as derived at `computed_leak`."""
    inner, storage = accumulator_of(name), storage_of(name)
    u, tiny, least = mpf(inner.unit_roundoff), mpf(inner.smallest_subnormal), mpf(storage.smallest_subnormal)
    lower = mpf(alpha) * (1 - 3 * u)
    underflow = least / (2 if storage == inner else 4)
    reach = int(mpmath.floor(mpmath.sqrt(mpmath.ceil(-mpmath.log(underflow) / lower))))
    count = (2 * reach + 1) ** dimensions - 1
    mass = rivals(lower, dimensions) * (1 + 2 * ulps * u) * (1 + mpf(storage.unit_roundoff))
    return mass + count * (2 * ulps * tiny + least / 2), count


CASES = [
    (18.25, 2, "float32"),
    (60.0, 3, "float32"),
    (86.5, 1, "float32"),
    (103.5, 2, "float32"),
    (38.5, 2, "float64"),
    (740.0, 1, "float64"),
    (9.75, 2, "float16"),
    (17.0, 1, "float16"),
    (8.0, 2, "bfloat16"),
    (92.5, 2, "bfloat16"),
    (46.0, 2, "tf32"),
    (18.25, 2, "tf32"),
    (46.0, 2, "bf32"),
]


@pytest.mark.parametrize(("alpha", "dimensions", "name"), CASES)
@pytest.mark.parametrize("ulps", [2.0, 20.0])
def test_almost_hard_heads(alpha, dimensions, name, ulps):
    inner, storage = accumulator_of(name), storage_of(name)
    mass, count = off_target(alpha, dimensions, name, ulps)
    assert just_above(computed_leak(alpha, dimensions, name, ulps), mass)
    growth = mpmath.root(mass / mpf(storage.smallest_subnormal) + 1, inner.precision - 2)
    growth *= 2 if storage == inner else 4
    operands = mpf(operand_error(name))
    bound = hard_mixing_bound(alpha, dimensions, name, ulps)
    assert just_above(bound.factor, operands + (1 + operands) * growth * mass * (1 + mpf(inner.unit_roundoff)))
    assert just_above(bound.absolute, growth * count * mpf(inner.smallest_normal))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("ulps", [2.0, 2.0**18])
def test_the_threshold_where_the_target_is_one(name, dimensions, ulps):
    """The off-target sum at the threshold fits its budget, and no longer does a little below."""
    inner, storage = accumulator_of(name), storage_of(name)
    u, cast = mpf(inner.unit_roundoff), storage != inner
    budget = mpf(storage.unit_roundoff) / 2 - 2 * dimensions * u if cast else u
    threshold = target_rounds_to_one_threshold(name, dimensions, ulps)

    def off(alpha):
        q = mpmath.exp(-mpf(alpha))
        others = 4 * (rivals(mpf(alpha), dimensions) - 2 * dimensions * q)
        growth = mpmath.root(others / mpf(inner.smallest_subnormal), inner.precision - 2)
        return 2 * dimensions * q * (1 + (4 * dimensions + 4 * ulps) * u) + others * growth

    assert off(threshold) <= budget
    spacing = threshold * 4 * mpf(storage.unit_roundoff)
    assert off(threshold - spacing - mpf(dimensions) / 64 * cast) > budget


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("keys", "score_error", "ulps"), [(1, 0.0, 2.0), (9, 0.125, 2.0), (1000, 2.0**-10, 20.0)])
def test_soft_heads(name, keys, score_error, ulps):
    inner, storage = accumulator_of(name), storage_of(name)
    u, out = mpf(inner.unit_roundoff), mpf(storage.unit_roundoff)
    exp, summed = 2 * ulps * u, keys * u / (1 - keys * u)
    weights = mpmath.exp(2 * mpf(score_error)) * (1 + exp) * (1 + out) * (1 + u) ** 2 / ((1 - exp) * (1 - summed)) - 1
    weights += 2 * keys * ((ulps + 1) * mpf(inner.smallest_normal) + mpf(storage.smallest_subnormal))
    assert just_above(softmax_error(keys, name, score_error, ulps), weights, 1e-11)
    product = (1 + summed) * (1 + (out if storage != inner else 0)) * (1 + mpf(operand_error(name)))
    bound = soft_mixing_bound(keys, name, score_error, ulps)
    assert just_above(bound.factor, weights + (1 + weights) * (product - 1), 1e-11)
    lost = (2 * keys + 1) * mpf(inner.smallest_normal) + mpf(storage.smallest_subnormal)
    assert just_above(bound.absolute, lost)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_score_error(name, dimensions):
    def gamma(operations, u):
        return operations * mpf(u) / (1 - operations * mpf(u))

    features = 1 + gamma(5, FORMATS[name].unit_roundoff)
    relative = features * (1 + gamma(dimensions + 1, accumulator_of(name).unit_roundoff)) - 1
    formula = 3 * dimensions * relative * mpf(46.5) * 49
    assert just_above(absolute_score_error(46.5, 7, dimensions, name), formula)
