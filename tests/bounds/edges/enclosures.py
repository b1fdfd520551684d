"""The balls and counts behind the bounds, before anything is rounded: exactly what their derivations say."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from flint import arb, ctx

from conv2attn.bounds import (
    EXP_ULPS,
    FORMATS,
    computed_leak,
    convolution_bound,
    hard_mixing_bound,
    leaked_mass,
    leaked_mass_covariance,
    smallest_eigenvalue_at_least,
    soft_mixing_bound,
    softmax_error,
    target_rounds_to_one_threshold,
)
from conv2attn.bounds.covariance import is_positive_definite
from conv2attn.bounds.formats import accumulator_of, storage_of
from conv2attn.bounds.hard import _lattice_points
from conv2attn.bounds.leak import _rivals

mpf = mpmath.mpf
BITS = 2000
CUT = {"tf32": Fraction(1, 2**10), "bf32": Fraction(1, 2**7)}  # how much of an operand may be lost


@pytest.fixture(autouse=True)
def _many_digits():
    with mpmath.workprec(BITS), ctx.workprec(BITS):
        yield


def ends(ball):
    """Both ends of a ball, in mpmath."""
    return tuple(mpmath.ldexp(int(m), int(e)) for m, e in (end.man_exp() for end in (ball.lower(), ball.upper())))


def nearly(found, expected, bits=1500):
    return abs(found - expected) <= abs(expected) * mpf(2) ** -bits


@pytest.mark.parametrize("alpha", [0.75, 2.5, 3.0, 3.5, 9.0])
@pytest.mark.parametrize("shift", [0.0, 0.375, 0.5])
def test_the_ball_around_the_rivals_of_an_axis(alpha, shift):
    """Eight terms of one theta series, the dual one below alpha = 3, and the derived bound of the rest; no more."""
    lower, upper = ends(_rivals(arb(alpha), shift))
    a, s, terms = mpf(alpha), mpf(shift), range(1, 9)
    if alpha < 3:
        dual, scale = mpmath.pi**2 / a, mpmath.sqrt(mpmath.pi / a) * mpmath.exp(a * s * s)
        waves = 1 + mpmath.fsum(2 * mpmath.exp(-dual * m * m) * mpmath.cos(2 * mpmath.pi * m * s) for m in terms)
        tail = 2 * mpmath.exp(-81 * dual) / (1 - mpmath.exp(-dual))
        expected = scale * (waves - tail) - 1, scale * (waves + tail) - 1
    else:
        known = mpmath.fsum(mpmath.exp(-a * (n * n - 2 * n * s)) + mpmath.exp(-a * (n * n + 2 * n * s)) for n in terms)
        tail = 2 * mpmath.exp(-72 * a) / (1 - mpmath.exp(-a))
        expected = known, known + tail
    blur = (expected[1] - expected[0]) / 2**20  # the radius of a ball has 30 bits
    assert abs(lower - expected[0]) <= blur
    assert abs(upper - expected[1]) <= blur
    truth = mpmath.nsum(lambda n: mpmath.exp(-a * (n * n - 2 * n * s)), [-60, 60]) - 1
    assert lower <= truth <= upper


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("reach", [1, 2, 5])
def test_lattice_points_are_counted_to_where_their_weights_underflow(name, dimensions, reach):
    """A weight exp(-alpha d^2) lasts while alpha d^2 is less than ln of twice 1/subnormal; of four times, if cast."""
    inner, storage = accumulator_of(name), storage_of(name)
    lasting = (arb(2 if storage == inner else 4) / arb(storage.smallest_subnormal)).log()
    just_below, just_above = (lasting / (reach**2 - 1 + arb(step) / 10**6) for step in (1, -1))
    assert _lattice_points(just_below, dimensions, storage, inner) == (2 * reach + 1) ** dimensions - 1
    if reach > 1:
        assert _lattice_points(just_above, dimensions, storage, inner) == (2 * reach - 1) ** dimensions - 1


def test_errors_of_exp_are_twice_what_is_documented_and_what_torch_shows_on_float32():
    assert EXP_ULPS == {"softmax": 2 * 1.0, "fused": 20.0}
    arguments = -torch.arange(1, 80, 2.0**-9)
    exact = arguments.double().exp()
    ulps = (arguments.exp().double() - exact).abs() / torch.from_numpy(np.spacing(exact.float().numpy())).double()
    assert ulps.max() <= EXP_ULPS["softmax"] / 2


def test_what_is_left_out_of_a_call_is_what_is_documented():
    assert softmax_error(9, "float32") == softmax_error(9, "float32", 0.0, 2.0)
    assert soft_mixing_bound(9, "float32") == soft_mixing_bound(9, "float32", 0.0, 2.0)
    assert computed_leak(20.0, 2, "float32") == computed_leak(20.0, 2, "float32", 2.0)
    assert hard_mixing_bound(20.0, 2, "float32") == hard_mixing_bound(20.0, 2, "float32", 2.0)
    assert target_rounds_to_one_threshold("float32") == target_rounds_to_one_threshold("float32", 2, 2.0)
    assert leaked_mass(5.0) == leaked_mass(5.0, 2)
    assert convolution_bound(9, "float16") == convolution_bound(
        9, "float16", bias=True, casts=1, truncating=False, flush_to_zero=False
    )


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("truncating", [False, True])
@pytest.mark.parametrize(("bias", "casts"), [(False, 0), (True, 3)])
def test_the_factor_of_a_convolution_is_its_formula(name, truncating, bias, casts):
    inner, storage = accumulator_of(name), storage_of(name)
    roundings = (20 + bias) * Fraction(inner.unit_roundoff) * (2 if truncating or name in CUT else 1)
    summed = 1 + roundings / (1 - roundings)
    operands = (1 + CUT.get(name, 0)) ** 2
    cast = 1 if storage == inner else 1 + Fraction(storage.unit_roundoff)
    exact = operands * summed * cast**casts - 1
    found = convolution_bound(20, name, bias=bias, casts=casts, truncating=truncating).factor
    assert found >= exact > Fraction(math.nextafter(found, 0)) - exact / 2**50


def test_a_head_must_be_hard_for_the_error_of_its_exp():
    coarse = 2.0**18
    alpha = target_rounds_to_one_threshold("float32", 2)
    assert alpha < target_rounds_to_one_threshold("float32", 2, coarse)
    hard_mixing_bound(alpha, 2, "float32")
    with pytest.raises(ValueError, match="C2A130"):
        hard_mixing_bound(alpha, 2, "float32", coarse)


def test_a_covariance_of_any_size():
    assert leaked_mass_covariance([[5.0]]) == pytest.approx(leaked_mass(5.0, 1), rel=1e-12)
    assert leaked_mass_covariance(5.0 * np.eye(3)) == pytest.approx(leaked_mass(5.0, 3), rel=1e-12)
    assert smallest_eigenvalue_at_least([[2**62, 2**61], [2**61, 2**62]]) == pytest.approx(2.0**61, rel=1e-12)


def test_a_guess_of_the_eigenvalue_that_is_too_high_is_lowered_until_it_is_certified(monkeypatch):
    monkeypatch.setattr("numpy.linalg.eigvalsh", lambda matrix: np.array([2.5, 3.0]))
    assert smallest_eigenvalue_at_least([[2.0, 0.0], [0.0, 3.0]]) == 2.5 - 3 / 4  # 3 times powers of two, from 2^-50 on
    assert smallest_eigenvalue_at_least([[2.5, 0.0], [0.0, 3.0]]) == 2.5 - 3 * 2.0**-50


def test_a_nearly_singular_matrix_has_a_certified_eigenvalue():
    """Ones everywhere and c more on the diagonal: the smallest eigenvalue is c, near the rounding of the largest."""
    size, exact = 24, Fraction(1, 2**40)
    matrix = np.ones((size, size)) + float(exact) * np.eye(size)
    found = smallest_eigenvalue_at_least(matrix)
    assert exact / 2 < Fraction(found) <= exact
    assert is_positive_definite(matrix, found)
