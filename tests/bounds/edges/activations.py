"""What is stated of each activation is its supremum, rounded up to five digits; computed values stay near it."""

import math
from fractions import Fraction

import mpmath
import pytest
import torch
from torch.nn import functional as F

from conv2attn.bounds import activations as known
from conv2attn.bounds.activations import Activation, clipped, elu, leaky, softplus, softshrink

mpf = mpmath.mpf
PHI = mpmath.sqrt(2 / mpmath.pi)
INF = math.inf
# function, torch's, a point where the slope is largest, sup |f|, width, roundings
FUNCTIONS = {
    "RELU": (lambda x: max(x, 0), F.relu, 1, INF, INF, 0),
    "SIGMOID": (lambda x: 1 / (1 + mpmath.exp(-x)), torch.sigmoid, 0, 1, 1, 64),
    "TANH": (mpmath.tanh, torch.tanh, 0, 1, 2, 64),
    "SOFTSIGN": (lambda x: x / (1 + abs(x)), F.softsign, 0, 1, 2, 4),
    "SINE": (mpmath.sin, torch.sin, 0, 1, 2, 64),
    "COSINE": (mpmath.cos, torch.cos, -mpmath.pi / 2, 1, 2, 64),
    "ARCTANGENT": (mpmath.atan, torch.atan, 0, mpmath.pi / 2, mpmath.pi, 64),
    "ERF": (mpmath.erf, torch.erf, 0, 1, 2, 64),
    "LOG_SIGMOID": (lambda x: -mpmath.log(1 + mpmath.exp(-x)), F.logsigmoid, -40, INF, INF, 128),
    "GELU": (lambda x: x * mpmath.ncdf(x), F.gelu, mpmath.sqrt(2), INF, INF, 64),
    "GELU_TANH": (
        lambda x: x / 2 * (1 + mpmath.tanh(PHI * (x + mpf("0.044715") * x**3))),
        lambda x: F.gelu(x, approximate="tanh"),
        1.4185,
        INF,
        INF,
        64,
    ),
    "SILU": (lambda x: x / (1 + mpmath.exp(-x)), F.silu, 2.3994, INF, INF, 64),
    "MISH": (lambda x: x * mpmath.tanh(mpmath.log(1 + mpmath.exp(x))), F.mish, 1.4906, INF, INF, 192),
    "HARDSWISH": (lambda x: x * min(max(x + 3, 0), 6) / 6, F.hardswish, 3 - 1e-9, INF, INF, 4),
    "HARDSIGMOID": (lambda x: min(max(x + 3, 0), 6) / mpf(6), F.hardsigmoid, 0, 1, 1, 4),
    "TANHSHRINK": (lambda x: x - mpmath.tanh(x), F.tanhshrink, 40, INF, INF, 64),
}


@pytest.fixture(autouse=True)
def _fifty_digits():
    with mpmath.workdps(50):
        yield


def stands_for(stated, exact):
    """Whether `stated` is not below `exact`, and above by at most a hundred-thousandth."""
    if exact in (0, INF):
        return stated == exact
    return exact * (1 - mpf(10) ** -30) <= stated <= exact * (1 + mpf(10) ** -5)


def test_every_constant_is_tested():
    assert FUNCTIONS.keys() == {name for name, value in vars(known).items() if isinstance(value, Activation)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_stated_is_reached(name):
    function, computed, steepest, largest, width, roundings = FUNCTIONS[name]
    stated = getattr(known, name)
    assert stands_for(stated.slope, abs(mpmath.diff(function, steepest, h=mpf(10) ** -10)))
    assert stands_for(stated.at_zero, abs(mpf(function(mpf(0)))))
    assert stands_for(stated.largest, largest)
    assert stands_for(stated.width, width)
    assert (stated.roundings, stated.jump) == (roundings, 0.0)
    points = torch.linspace(-6, 6, 97)
    for x, y in zip(points.tolist(), computed(points).tolist(), strict=True):
        assert abs(y - function(mpf(x))) <= roundings * mpf(2) ** -24 * (abs(x) + 1)


def test_what_saturates_is_computed_as_well_far_out():
    saturating = {name for name in FUNCTIONS if getattr(known, name).saturates is True}
    assert saturating == {"SIGMOID", "TANH", "SOFTSIGN", "ARCTANGENT", "ERF", "HARDSIGMOID"}
    assert not any(value.saturates for value in (leaky(0.1), elu(), softplus(), softshrink(), clipped(0.0, 1.0)))
    points = torch.tensor([-1e6, -300.0, -90.0, -20.0, 20.0, 90.0, 300.0, 1e6])
    for name in saturating:
        function, computed, *_, roundings = FUNCTIONS[name]
        for x, y in zip(points.tolist(), computed(points).tolist(), strict=True):
            assert abs(y - function(mpf(x))) <= roundings * mpf(2) ** -24


def test_one_call_of_a_library_is_20_ulps_and_24_steps():
    assert known.LIBRARY == 2 * 20 + 24
    assert Fraction(known.HARDSIGMOID.slope) >= Fraction(1, 6)


@pytest.mark.parametrize(("low", "high"), [(-2.0, 1.5), (0.5, 2.0), (-3.0, -0.5), (2.0, 1.0), (-1.0, 4.0)])
def test_clipping(low, high):
    values = [min(max(x, low), high) for x in (-9.0, low, 0.0, high, 9.0)]
    found = clipped(low, high)
    assert (found.slope, found.at_zero, found.roundings) == (1.0, abs(values[2]), 0)
    assert found.width == max(values) - min(values)
    assert found.largest == max(abs(low), abs(high)) >= max(map(abs, values))


def test_leaky_slopes():
    assert leaky(0.01) == Activation(1.0, roundings=2)
    assert leaky(-3.0) == leaky(3.0) == Activation(3.0, roundings=2)


def test_elu_is_steepest_at_zero_from_either_side():
    grown = 1 + 2.0**-50
    assert elu() == elu(1.0, 1.0, 1.0) == elu(0.5) == Activation(grown, roundings=64)
    assert elu(-2.0) == elu(2.0) == Activation(2 * grown, roundings=128)
    assert elu(1.0, -4.0) == elu(1.0, 4.0) == Activation(4 * grown, roundings=256)
    assert elu(0.25, 0.5) == Activation(0.5 * grown, roundings=64)
    assert elu(0.25, 1.0, -8.0) == elu(0.25, 1.0, 8.0) == Activation(2 * grown, roundings=64)
    assert elu(input_scale=8.0) == Activation(8 * grown, roundings=64)
    assert elu(1.01).roundings == 65


def test_selu_is_that_of_torch():
    ends = F.selu(torch.tensor([1.0, -1e9], dtype=torch.float64)).tolist()
    assert ends == pytest.approx([known.SELU_SCALE, -known.SELU_SCALE * known.SELU_ALPHA], rel=1e-15)


@pytest.mark.parametrize(("beta", "threshold"), [(1.0, 20.0), (2.0, 3.0), (0.5, 10.0), (-0.25, 1.0)])
def test_softplus(beta, threshold):
    found = softplus(beta, threshold)
    assert found.slope == 1.0
    assert stands_for(found.at_zero, mpmath.log(2) / abs(beta))
    assert (found.largest, found.width) == (INF, INF)
    assert found.roundings == 128 * max(1, 1 / abs(beta))
    jump = mpmath.log(1 + mpmath.exp(-threshold)) / abs(beta)
    assert jump <= found.jump <= jump * (1 + mpmath.exp(-threshold))


def test_softplus_and_softshrink_are_called_as_those_of_torch():
    assert softplus() == softplus(1.0, 20.0)
    assert softplus(0.75).roundings == 171
    assert softshrink() == softshrink(0.5) == softshrink(0.0) == Activation(1.0, roundings=1)
    assert softshrink(-1.0) == Activation(INF)
