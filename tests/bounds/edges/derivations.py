"""The formulas of the docstrings once more, in 100-digit arithmetic: constants too small to show on examples."""

import mpmath
import pytest

from conv2attn.bounds import (
    FORMATS,
    absolute_score_error,
    computed_leak,
    convolution_bound,
    hard_mixing_bound,
    one_hot_threshold,
    soft_mixing_bound,
    softmax_error,
    target_rounds_to_one_threshold,
)
from conv2attn.bounds.formats import accumulator_of, storage_of

mpf = mpmath.mpf


@pytest.fixture(autouse=True)
def _hundred_digits():
    with mpmath.workdps(400):
        yield


def just_above(bound, formula, slack=1e-13):
    return formula <= bound <= formula * (1 + slack) + mpf(2) ** -1073


def gamma(operations, u):
    return operations * mpf(u) / (1 - operations * mpf(u))


def convolution(name, terms, bias=0, casts=1, flush=False, truncating=False):
    """Factor and absolute part for a convolution of `terms` products."""
    form, inner, storage = FORMATS[name], accumulator_of(name), storage_of(name)
    coarse = 2 if form.cuts or truncating else 1
    operand = (1 + 2 * mpf(form.unit_roundoff)) ** 2 if form.cuts else 1
    stored = (1 + mpf(storage.unit_roundoff)) ** casts if storage != inner else 1
    factor = operand * (1 + gamma(terms + bias, coarse * inner.unit_roundoff)) * stored - 1
    if flush:
        lost = (2 * terms + bias) * mpf(inner.smallest_normal) + casts * mpf(storage.smallest_normal)
    else:
        lost = (coarse * terms * mpf(inner.smallest_subnormal) + casts * mpf(storage.smallest_subnormal)) / 2
    return factor, lost * (1 + factor)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "options", [{}, {"flush_to_zero": True}, {"truncating": True}, {"casts": 3}, {"casts": 2, "flush_to_zero": True}]
)
def test_convolution(name, options):
    bound = convolution_bound(27, name, **options)
    known = {"flush": options.get("flush_to_zero", False), "truncating": options.get("truncating", False)}
    factor, lost = convolution(name, 27, 1, options.get("casts", 1), **known)
    assert just_above(bound.factor, factor)
    assert just_above(bound.absolute, lost)


def softmax(name, keys, score, ulps=2):
    """The mass by which a computed softmax is off."""
    inner, storage = accumulator_of(name), storage_of(name)
    u, v, tiny = (mpf(number) for number in (inner.unit_roundoff, storage.unit_roundoff, inner.smallest_normal))
    cut = keys * tiny * 2**24 * mpmath.exp(2 * mpf(score))
    off = (1 + 2 * ulps * u) * mpmath.exp(mpf(score)) - 1 + keys * (ulps + 1) * tiny + cut
    summed = gamma(keys, u)
    lost = (1 + summed) * 2 * keys * tiny
    quotients = (1 + u) ** 2 * (1 + v) - 1
    underflow = (1 + v) * (3 + 2 * u) * tiny + tiny + mpf(storage.smallest_subnormal)
    least = (1 - summed) * (1 - off) - lost
    if off > 1 or summed > 1 or least <= 0:
        return mpmath.inf
    return ((quotients + summed) * (1 + off) + 2 * off + lost) / least + keys * underflow


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("keys", "score"), [(1, 0.0), (49, 0.0), (49, 0.01), (2**20, 0.3), (9, 0.68), (9, 0.7), (9, 30), (12 * 10**6, 3)]
)
def test_softmax_and_the_mean_that_it_weighs(name, keys, score):
    weights = softmax(name, keys, score)
    assert just_above(softmax_error(keys, name, score), weights)
    if mpmath.isfinite(weights):
        product, bound = convolution(name, keys)[0], soft_mixing_bound(keys, name, score)
        lost = (2 * keys + 1) * mpf(accumulator_of(name).smallest_normal) + mpf(storage_of(name).smallest_subnormal)
        assert just_above(bound.factor, weights + (1 + weights) * product)
        assert just_above(bound.absolute, (1 + product) * lost)


def rivals(alpha, dimensions):
    """theta^n - 1: the weights off the target over the target's, on the whole lattice."""
    return mpmath.jtheta(3, 0, mpmath.exp(-alpha)) ** dimensions - 1


def points(alpha, dimensions, smallest):
    """How many displacements other than 0 have weights of at least `smallest`, counted in a box."""
    reach = mpmath.floor(mpmath.sqrt(mpmath.ceil(-mpmath.log(smallest) / alpha)))
    return int((2 * reach + 1) ** dimensions - 1)


def leak(name, alpha, dimensions, ulps=2):
    """The mass off the target as stored, and how many weights may not be 0."""
    inner, storage = accumulator_of(name), storage_of(name)
    u, v = mpf(inner.unit_roundoff), mpf(storage.unit_roundoff)
    lower = alpha * (1 - 3 * u)
    others = points(lower, dimensions, mpf(storage.smallest_subnormal) / (2 if storage == inner else 4))
    each = (1 + v) * ulps * mpf(inner.smallest_subnormal) + mpf(storage.smallest_subnormal) / 2
    return (1 + v) * (1 + 2 * ulps * u) * rivals(lower, dimensions) + others * each, others


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_almost_hard_heads(name, dimensions):
    inner, storage = accumulator_of(name), storage_of(name)
    first = target_rounds_to_one_threshold(name, dimensions)
    for alpha in (first, (first + one_hot_threshold(name)) / 2):
        mass, others = leak(name, mpf(alpha), dimensions)
        assert just_above(computed_leak(alpha, dimensions, name), mass)
        rounding, bound = convolution(name, others + 1)[0], hard_mixing_bound(alpha, dimensions, name)
        lost = (1 + rounding) * 2 * (others + 1) * mpf(inner.smallest_normal)
        if FORMATS[name].cuts:
            assert just_above(bound.factor, mass + rounding * (1 + mass))
            assert just_above(bound.absolute, lost)
            continue
        doubled = 2
        if storage != inner:
            doubled = 4
            lost += (1 + rounding) * (mpf(inner.smallest_normal) + mpf(storage.smallest_subnormal))
        assert just_above(bound.factor, doubled * (1 + rounding) * mass)
        assert just_above(bound.absolute, doubled * lost)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("ulps", [2, 20])
def test_from_which_alpha_the_target_has_weight_one(name, dimensions, ulps):
    inner, storage = accumulator_of(name), storage_of(name)
    u, v = mpf(inner.unit_roundoff), mpf(storage.unit_roundoff)

    def is_one(alpha):
        lower = alpha * (1 - 3 * u)
        others = points(lower, dimensions, mpf(inner.smallest_subnormal) / 2)
        rest = (1 + 2 * ulps * u) * rivals(lower, dimensions) + others * ulps * mpf(inner.smallest_subnormal)
        summed = (1 + gamma(others + 1, u)) * (1 + rest)
        return (1 + gamma(others, u)) * rest <= u or (1 - v / 2) * summed <= 1 - u

    found = mpf(target_rounds_to_one_threshold(name, dimensions, ulps))
    assert is_one(found)
    assert not is_one(found * (1 - 4 * mpf(storage.unit_roundoff) - mpf(2) ** -48))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_score_error(name, dimensions):
    features = 1 + gamma(5, FORMATS[name].unit_roundoff)
    relative = features * (1 + gamma(dimensions + 1, accumulator_of(name).unit_roundoff)) - 1
    formula = 3 * dimensions * relative * mpf(46.5) * 49
    assert just_above(absolute_score_error(46.5, 7, dimensions, name), formula)
