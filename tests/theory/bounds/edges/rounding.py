"""What torch and numpy compute stays within the bounds, whose formulas are licensed; defaults and parts of them."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from softmax_rounding import softmax_error

from conv2attn.theory.bounds import (
    EXP_ULPS,
    FORMATS,
    Arithmetic,
    Head,
    RoundingBound,
    accumulator_of,
    any_mean_bound,
    computed_leak,
    convolution_bound,
    difference_bound,
    hard_mixing_bound,
    integer_matrix,
    leaked_mass,
    leaked_mass_diagonal,
    one_hot_threshold,
    over_power_of_two,
    soft_mixing_bound,
    soft_reading,
    storage_of,
    target_rounds_to_one_threshold,
)

DTYPES = {name: getattr(torch, name) for name, form in FORMATS.items() if not form.cuts}


@pytest.fixture(autouse=True)
def _hundred_digits():
    with mpmath.workdps(100):
        yield


def within(bound, computed, exact, size):
    return abs(Fraction(float(computed)) - exact) <= Fraction(bound.factor) * size + Fraction(bound.absolute)


def exact_dot(weights, inputs, bias=0.0):
    products = [Fraction(float(w)) * Fraction(float(x)) for w, x in zip(weights, inputs, strict=True)]
    return sum(products) + Fraction(float(bias)), sum(map(abs, products)) + abs(Fraction(float(bias)))


def inner_dtype(name):
    return getattr(torch, accumulator_of(name).name)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("decades", [0, 12])
def test_convolutions_of_torch_stay_within_the_bound(name, decades):
    random = torch.Generator().manual_seed(decades)
    spread = min(decades, 2) if name == "float16" else decades

    def draw(*shape):
        scale = 10.0 ** (spread * (torch.rand(shape, generator=random, dtype=torch.float64) - 0.5))
        return (scale * torch.randn(shape, generator=random, dtype=torch.float64)).to(DTYPES[name])

    image, weight, bias = draw(1, 5, 6, 5), draw(4, 5, 3, 2), draw(4)
    computed = torch.nn.functional.conv2d(image, weight, bias)
    bound = convolution_bound(5 * 3 * 2, name, casts=2)
    for o, i, j in np.ndindex(4, 4, 4):
        exact, size = exact_dot(weight[o].flatten(), image[0, :, i : i + 3, j : j + 2].flatten(), bias[o])
        assert within(bound, computed[0, o, i, j], exact, size)


def tensor_core(weights, inputs, bits):
    """Operands truncated to so many bits; products exact; every addition truncated towards zero to 24 bits."""

    def truncate(x, bits):
        if not x:
            return x
        _, exponent = math.frexp(float(abs(x)))  # exact here: at most 53 bits are ever held
        unit = Fraction(2) ** (exponent - bits)
        return math.copysign(1, x) * Fraction(abs(x) // unit) * unit

    total = Fraction(0)
    for w, x in zip(weights, inputs, strict=True):
        total = Fraction(truncate(total + Fraction(truncate(w, bits)) * Fraction(truncate(x, bits)), 24))
    return total


@pytest.mark.parametrize(("name", "bits"), [("tf32", 11), ("bf32", 8)])
def test_cut_operands_and_truncated_sums_are_covered(name, bits):
    top = 1 + 2.0 ** (1 - bits) - 2.0**-23  # truncation removes almost 2 u of each operand
    random = np.random.default_rng(0)
    for weights in ([top], *random.standard_normal((10, 64)).astype(np.float32).tolist()):
        exact, size = exact_dot(weights, weights)
        computed = tensor_core(weights, weights, bits)
        assert within(convolution_bound(len(weights), name, bias=False), computed, exact, size)
        assert not within(convolution_bound(len(weights), "float32", bias=False), computed, exact, size)


@pytest.mark.parametrize("alpha", [2.0, 12.0])
def test_difference_of_a_leaking_layer_and_its_convolution(alpha):
    """Two taps in one dimension, inputs that make the leak as bad as it gets, everything else in rationals."""
    side, input_range, weights, bias = 9, 3.0, (0.75, -1.5), 0.5
    attention = torch.softmax(-alpha * (torch.arange(side)[:, None] - torch.arange(side)) ** 2.0, 1).double()
    worst = Fraction(0)
    for sign in (1, -1):
        mixed, exact = Fraction(bias), Fraction(bias)
        for query, weight in zip((3, 4), weights, strict=True):
            target = math.copysign(input_range, sign * weight)
            inputs = [target if k == query else -target for k in range(side)]  # each head sees its own worst input
            shares = list(map(Fraction, attention[query].tolist()))
            mixed += Fraction(weight) * sum(p * Fraction(x) for p, x in zip(shares, inputs, strict=True))
            exact += Fraction(weight) * Fraction(target)
        worst = max(worst, abs(mixed - exact))
    leak, side_bound = leaked_mass(alpha, 1), convolution_bound(2, "float32")
    bound = difference_bound(2.25, bias, input_range, side_bound, side_bound, leak=leak)
    assert worst <= Fraction(bound)
    assert worst > Fraction(difference_bound(2.25, bias, input_range, side_bound, side_bound, leak=leak / 2))


@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("library", [torch, np])
def test_exp_keeps_what_the_table_says(name, library):
    assert EXP_ULPS == {"softmax": 2 * 1.0, "fused": 20.0}
    arguments = -np.random.default_rng(0).uniform(0, 80, 1000).astype(np.dtype(name).type)
    values = torch.exp(torch.from_numpy(arguments)).numpy() if library is torch else np.exp(arguments)
    for argument, value in zip(arguments.tolist(), values, strict=True):
        ulps = abs(mpmath.mpf(float(value)) - mpmath.exp(mpmath.mpf(argument))) / mpmath.mpf(float(np.spacing(value)))
        assert ulps <= (EXP_ULPS["softmax"] / 2 if library is torch else EXP_ULPS["softmax"])


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize(("keys", "spread"), [(1, 1.0), (49, 3.0), (200, 30.0)])
def test_computed_softmaxes_and_their_means(name, keys, spread):
    random = torch.Generator().manual_seed(keys)
    scores = (spread * torch.randn(keys, generator=random)).to(inner_dtype(name))
    scores -= scores.max()
    computed = torch.softmax(scores, 0).to(DTYPES[name])
    powers = [mpmath.exp(mpmath.mpf(score)) for score in scores.tolist()]
    exact = [power / mpmath.fsum(powers) for power in powers]
    error = mpmath.fsum(abs(c - e) for c, e in zip(computed.tolist(), exact, strict=True))
    assert error <= softmax_error(keys, name)
    inputs = (torch.rand(keys, generator=random) * 2 - 1).to(DTYPES[name])
    mean = (computed.to(inner_dtype(name)) * inputs.to(inner_dtype(name))).sum().to(DTYPES[name])
    truth = mpmath.fsum(p * x for p, x in zip(exact, inputs.tolist(), strict=True))
    off, product = softmax_error(keys, name), convolution_bound(keys, name, bias=False)
    assert abs(mpmath.mpf(mean.item()) - truth) <= off + (1 + off) * product.factor + product.absolute


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_partial_sums_that_are_stored_round_once_more_for_each_key_to_first_order(name):
    alpha, stored = 0.9 * one_hot_threshold(name), storage_of(name).unit_roundoff
    others = 2 * math.isqrt(math.ceil(-math.log(storage_of(name).smallest_subnormal / 4) / alpha))
    once, each_time = (hard_mixing_bound(alpha, 1, name, 2.0, stores=stores) for stores in (False, True))
    assert others * stored <= each_time.factor / once.factor - 1 <= 1.05 * others * stored
    tiny, least = accumulator_of(name).smallest_normal, storage_of(name).smallest_subnormal
    lost = 2 * (others + 1) * tiny + tiny + least
    assert once.absolute == pytest.approx(4 * lost, rel=0.01, abs=0)
    assert each_time.absolute == pytest.approx(4 * (lost + others * least), rel=0.05, abs=0)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("stores", "keys"), [(False, 5), (True, 5), (False, 1000)])
def test_a_mean_with_any_weights_rounds_to_first_order(name, stores, keys):
    """Weights as in a softmax; operands that are cut, sums that round to a storage or not, twice four a key; a cast.

    What is lost below the normal numbers counts once for each key, and once more.
    """
    u, cast = accumulator_of(name).unit_roundoff, storage_of(name).unit_roundoff
    cuts = 2 * 2 * FORMATS[name].unit_roundoff if FORMATS[name].cuts else 0
    first_order = 2 * u + cast + keys * u + cuts + 2 * 4 * keys * (cast if stores else u) + cast
    bound = any_mean_bound(keys, Arithmetic(name, stores_means=stores))
    assert first_order <= bound.factor - keys * bound.absolute <= 1.1 * math.expm1(first_order)
    tiny, least = accumulator_of(name).smallest_normal, storage_of(name).smallest_subnormal
    assert bound.absolute == pytest.approx(8 * ((2 * keys + 1) * tiny + keys * least), rel=1e-9, abs=0)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("added", [0, 3])
@pytest.mark.parametrize("stores", [False, True])
def test_channel_products_round_as_often_as_they_are_stored_to_first_order(name, added, stores):
    """The product and the bias are cast, every part that is added too, and twice each partial sum that is stored."""
    terms, u, cast = 36, accumulator_of(name).unit_roundoff, storage_of(name).unit_roundoff
    casts = 2 + added + (2 * terms if stores else 0)
    first_order = (terms + 1) * u + (casts * cast if cast != u else 0)
    bound = Arithmetic(name, stores_products=stores).rounding(terms, added)
    assert first_order <= bound.factor <= 1.01 * math.expm1(first_order)
    if cast != u:
        least = storage_of(name).smallest_subnormal / 2 * (casts + added)
        assert least <= bound.absolute <= 1.5 * least


@pytest.mark.parametrize("shifts", [(0.5, 0.0), (0.75, 0.0)])
def test_a_head_halfway_between_pixels_or_of_unknown_scores_leaks_everything_as_computed(shifts):
    head = Head(5.0, shifts, sum(shift**2 for shift in shifts))
    assert head.computed_leak("float32", 2.0) == 1.0
    assert head.leak() == (1.0 if max(shifts) > 0.5 else leaked_mass_diagonal([5.0, 5.0], shifts))
    reading = soft_reading(head, (9, 9), Arithmetic("float32"), 0.0)
    assert reading == (1.0, any_mean_bound(81, Arithmetic("float32")))


@pytest.mark.parametrize("alpha", [0.001, 0.5, 3.0, 20.0])
def test_a_leak_is_a_share_and_names_a_theorem_where_it_says_something(alpha):
    leak, bound = Head(alpha, (0.0,)).computed_leak("float32", 2.0), computed_leak(alpha, 1, "float32", 2.0)
    assert leak == min(1.0, bound)
    assert leak.claims == ({"SOFT"} if bound < 1 else frozenset())


def test_where_rounding_may_exceed_every_token_the_bound_is_that_of_any_mean():
    head, keys, fused = Head(5.0, (0.0, 0.0)), (9, 9), Arithmetic("float32", fused=True)
    for score_error, is_any in ((0.1, False), (0.15, True)):
        mixing = soft_mixing_bound(head, keys, fused, score_error)
        assert (mixing.factor > 1) == is_any
        expected = (1.0, any_mean_bound(81, fused)) if is_any else (pytest.approx(head.leak()), mixing)
        assert soft_reading(head, keys, fused, score_error) == expected


@given(st.lists(st.sampled_from([0.0, -1.0]) | st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_floats_are_exactly_their_integers_over_a_power_of_two(numbers):
    power, (integers,) = over_power_of_two(np.array([numbers]))
    assert [Fraction(integer, power) for integer in integers] == list(map(Fraction, numbers))
    matrix, bits = integer_matrix(np.array([numbers]))
    assert (1 << bits, [int(entry) for entry in matrix.entries()]) == (power, integers)


@pytest.mark.parametrize("name", DTYPES)
def test_almost_hard_heads_read_the_target(name):
    first, last = target_rounds_to_one_threshold(name, 2, 2.0), one_hot_threshold(name)
    ticks, inner = torch.arange(-3, 4), inner_dtype(name)
    squared = (ticks[:, None] ** 2 + ticks**2).flatten()
    for alpha in np.linspace(first, last, 6):
        alpha = FORMATS[name].round_up(float(alpha))
        attention = torch.softmax(-torch.tensor(alpha, dtype=inner) * squared.to(inner), 0).to(DTYPES[name])
        for target in (1.0, 0.0, 2.0**-10):
            inputs = torch.where(squared == 0, target, 1.0).to(inner)
            error = abs(Fraction((attention.to(inner) * inputs).sum().to(DTYPES[name]).item()) - Fraction(target))
            bound = hard_mixing_bound(alpha, 2, name, 2.0)
            assert error <= Fraction(bound.factor) + Fraction(bound.absolute)
            if target == 0:
                assert (error > 0) == (alpha < last)
    assert hard_mixing_bound(last, 2, name, 2.0) == RoundingBound(0.0, 0.0)
    assert computed_leak(last, 2, name, 2.0) == 0.0
