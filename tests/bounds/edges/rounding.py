"""Rounding bounds against exact rational arithmetic, on random, wide-ranging and worst-case sums."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from conv2attn.bounds import (
    FORMATS,
    RoundingBound,
    convolution_bound,
    difference_bound,
    dot_product_terms,
    gamma,
    leaked_mass,
    mixing_effect,
)
from conv2attn.bounds.rounding import operand_error
from conv2attn.errors import UsageError

DTYPES = {name: getattr(torch, name) for name, form in FORMATS.items() if not form.cuts}


def within(bound, computed, exact, size):
    return abs(Fraction(float(computed)) - exact) <= Fraction(bound.factor) * size + Fraction(bound.absolute)


def exact_dot(weights, inputs, bias=0.0):
    products = [Fraction(float(w)) * Fraction(float(x)) for w, x in zip(weights, inputs, strict=True)]
    return sum(products) + Fraction(float(bias)), sum(map(abs, products)) + abs(Fraction(float(bias)))


@pytest.mark.parametrize("operations", [0, 1, 9, 147, 4609, 10**6])
def test_gamma_is_rounded_up_once(operations):
    for form in FORMATS.values():
        u = Fraction(form.unit_roundoff)
        if operations * u >= 1:
            with pytest.raises(UsageError, match="C2A001 gamma"):
                gamma(operations, form.unit_roundoff)
            continue
        exact, bound = operations * u / (1 - operations * u), gamma(operations, form.unit_roundoff)
        assert bound >= exact
        assert bound == 0 or math.nextafter(bound, 0) < exact


def test_gamma_refuses_nonsense():
    for operations, u in ((-1, 2.0**-24), (1, 0.0), (1, -1.0), (1, 1.0), (2**24, 2.0**-24)):
        with pytest.raises(UsageError, match="C2A001 gamma"):
            gamma(operations, u)


def test_terms_of_a_dot_product():
    assert dot_product_terms(3, (7, 7)) == 147
    assert dot_product_terms(8, (3,), groups=8) == 3
    with pytest.raises(UsageError, match="4 groups do not divide 6 channels"):
        dot_product_terms(6, (3, 3), groups=4)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("decades", [0, 3, 12])
def test_convolutions_of_torch_stay_within_the_bound(name, decades):
    random = torch.Generator().manual_seed(decades)
    spread = min(decades, 2) if name == "float16" else decades

    def draw(*shape):
        scale = 10.0 ** (spread * (torch.rand(shape, generator=random, dtype=torch.float64) - 0.5))
        return (scale * torch.randn(shape, generator=random, dtype=torch.float64)).to(DTYPES[name])

    image, weight, bias = draw(1, 5, 6, 5), draw(4, 5, 3, 2), draw(4)
    computed = torch.nn.functional.conv2d(image, weight, bias)
    bound = convolution_bound(dot_product_terms(5, (3, 2)), name, casts=2)
    for o in range(4):
        for i in range(4):
            for j in range(4):
                patch = image[0, :, i : i + 3, j : j + 2].flatten()
                exact, size = exact_dot(weight[o].flatten(), patch, bias[o])
                assert within(bound, computed[0, o, i, j], exact, size)


def one_after_the_other(terms, dtype):
    total = dtype(0)
    for term in terms:
        total = dtype(total + term)
    return total


@pytest.mark.parametrize(("name", "terms"), [("float32", 300), ("float64", 300)])
def test_bound_is_nearly_reached_so_half_of_it_would_be_refuted(name, terms):
    dtype, u = np.dtype(name).type, FORMATS[name].unit_roundoff
    inputs = [dtype(1)] + [dtype(u * (1 + 2.0**-10))] * (terms - 1)  # each addition rounds up by almost half an ulp
    exact, size = exact_dot([1] * terms, inputs)
    computed, bound = one_after_the_other(inputs, dtype), convolution_bound(terms, name, bias=False)
    assert within(bound, computed, exact, size)
    assert not within(RoundingBound(bound.factor / 2, bound.absolute), computed, exact, size)


def test_a_bias_is_one_more_addition():
    u = FORMATS["float32"].unit_roundoff
    products, bound = [np.float32(u * (1 + 2.0**-10))] * 20, convolution_bound(20, "float32")
    exact, size = exact_dot([1] * 20, products, bias=1.0)
    computed = one_after_the_other([np.float32(1), *products], np.float32)
    assert within(bound, computed, exact, size)
    assert not within(convolution_bound(18, "float32"), computed, exact, size)
    assert bound.factor == gamma(21, u)


def test_bounds_in_a_row():
    first, second = RoundingBound(2.0**-3, 2.0**-5), RoundingBound(2.0**-2, 2.0**-4)
    assert first.then(second) == RoundingBound(1.125 * 1.25 - 1, 2.0**-5 * 1.25 + 2.0**-4)


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_the_cast_of_half_types_is_counted(name):
    u = FORMATS[name].unit_roundoff
    inputs = torch.tensor([1.0, u * (1 - 2.0**-6)], dtype=DTYPES[name])
    exact, size = exact_dot([1, 1], inputs)
    computed, bound = inputs.float().sum().to(DTYPES[name]), convolution_bound(2, name, bias=False)
    assert within(bound, computed, exact, size)
    assert not within(convolution_bound(2, "float32", bias=False), computed, exact, size)


def test_underflow_is_counted():
    inputs = [np.float32(2.0**-75 * 0.99)] * 50
    exact, size = exact_dot(inputs, inputs)
    computed, bound = one_after_the_other([x * x for x in inputs], np.float32), convolution_bound(50, "float32")
    assert computed == 0
    assert within(bound, computed, exact, size)
    assert not within(RoundingBound(bound.factor, 0.0), computed, exact, size)
    assert not within(RoundingBound(bound.factor, bound.absolute / 2), computed, exact, size)


def test_flushing_is_counted():
    bound = convolution_bound(50, "float32", flush_to_zero=True)
    exact, size = exact_dot([2.0**-64 * 1.4] * 50, [2.0**-63 * 1.4] * 50)
    assert within(bound, 0.0, exact, size)
    assert not within(convolution_bound(50, "float32"), 0.0, exact, size)


def tensor_core(weights, inputs, bits):
    """Operands truncated to so many bits; products exact; every addition truncated towards zero to 24 bits."""

    def truncate(x, bits):
        if not x:
            return x
        mantissa, exponent = math.frexp(float(abs(x)))  # exact here: at most 53 bits are ever held
        unit = Fraction(2) ** (exponent - bits)
        return math.copysign(1, x) * Fraction(abs(x) // unit) * unit if mantissa else x

    total = Fraction(0)
    for w, x in zip(weights, inputs, strict=True):
        total = Fraction(truncate(total + Fraction(truncate(w, bits)) * Fraction(truncate(x, bits)), 24))
    return total


@pytest.mark.parametrize(("name", "bits"), [("tf32", 11), ("bf32", 8)])
def test_cut_operands_and_truncated_sums_are_covered(name, bits):
    random = np.random.default_rng(0)
    bound = convolution_bound(64, name, bias=False)
    worst = 0
    for _ in range(20):
        weights, inputs = (random.standard_normal(64).astype(np.float32) for _ in range(2))
        exact, size = exact_dot(weights, inputs)
        computed = tensor_core([float(w) for w in weights], [float(x) for x in inputs], bits)
        assert within(bound, computed, exact, size)
        worst = max(worst, abs(computed - exact) / size)
    assert worst > convolution_bound(64, "float32", bias=False).factor  # float32's bound is false for these
    top = 1 + 2.0 ** (1 - bits) - 2.0**-23  # truncation removes almost 2 u of each operand
    exact, size = exact_dot([top], [top])
    assert within(bound, tensor_core([top], [top], bits), exact, size)
    lost = abs(tensor_core([top], [top], bits) - exact)
    assert lost >= size * operand_error(name) / (1 + 2.0 ** (1 - bits)) ** 2 * 0.999


def test_truncating_additions_count_twice():
    plain, truncating = convolution_bound(100, "float32"), convolution_bound(100, "float32", truncating=True)
    assert truncating.factor == pytest.approx(2 * plain.factor, rel=1e-4)


@pytest.mark.parametrize("alpha", [2.0, 5.0, 12.0])
def test_difference_of_a_leaking_layer_and_its_convolution(alpha):
    """Two taps in one dimension, inputs that make the leak as bad as it gets, everything else in rationals."""
    side, input_range, weights, bias = 9, 3.0, (0.75, -1.5), 0.5
    attention = torch.softmax(-alpha * (torch.arange(side)[:, None] - torch.arange(side)) ** 2.0, 1).double()
    queries = (3, 4)
    worst = Fraction(0)
    for sign in (1, -1):
        mixed, exact = Fraction(bias), Fraction(bias)
        for query, weight in zip(queries, weights, strict=True):
            target = math.copysign(input_range, sign * weight)
            inputs = [target if k == query else -target for k in range(side)]  # each head sees its own worst input
            shares = list(map(Fraction, attention[query].tolist()))
            mixed += Fraction(weight) * sum(p * Fraction(x) for p, x in zip(shares, inputs, strict=True))
            exact += Fraction(weight) * Fraction(target)
        worst = max(worst, abs(mixed - exact))
    leak = leaked_mass(alpha, 1)
    side_bound = convolution_bound(2, "float32")
    bound = difference_bound(2.25, bias, input_range, side_bound, side_bound, leak=leak)
    assert worst <= Fraction(bound)
    assert worst > Fraction(difference_bound(2.25, bias, input_range, side_bound, side_bound, leak=leak / 2))


def test_difference_counts_every_part():
    f1, f2 = RoundingBound(2.0**-10, 2.0**-20), RoundingBound(2.0**-11, 2.0**-21)
    mixing = RoundingBound(2.0**-9, 2.0**-19)
    read = 3 * (2 * 2.0**-8 + 2.0**-9) + 2.0**-19
    assert mixing_effect(2.0**-8, 3.0, mixing) == read
    size = 5 * 3.0 + 7
    expected = 5 * read + 2.0**-10 * size + 2.0**-20 + 2.0**-11 * (size + 5 * read) + 2.0**-21
    assert difference_bound(5.0, -7.0, 3.0, f1, f2, leak=2.0**-8, mixing=mixing) == pytest.approx(expected, rel=1e-15)
    assert difference_bound(5.0, 7.0, 3.0, RoundingBound(0.0, 0.0), RoundingBound(0.0, 0.0)) == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_difference_refuses_what_is_not_a_size(bad):
    none = RoundingBound(0.0, 0.0)
    calls = [
        lambda: difference_bound(bad, 0.0, 1.0, none, none),
        lambda: difference_bound(1.0, 0.0, bad, none, none),
        lambda: difference_bound(1.0, 0.0, 1.0, RoundingBound(bad, 0.0), none),
        lambda: difference_bound(1.0, 0.0, 1.0, none, RoundingBound(0.0, bad)),
        lambda: mixing_effect(bad, 1.0),
    ]
    for call in calls:
        with pytest.raises(UsageError, match=r"C2A001 .* is not a finite number of at least 0"):
            call()
