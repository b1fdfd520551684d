"""The leak bound against 100-digit arithmetic, never below it and never far above."""

import math
from itertools import product

import mpmath
import numpy as np
import pytest
import torch

from conv2attn.bounds import (
    leak_at_least,
    leaked_mass,
    leaked_mass_covariance,
    leaked_mass_diagonal,
    smallest_eigenvalue_at_least,
)
from conv2attn.bounds.covariance import is_positive_definite
from conv2attn.errors import AlphaError, UsageError

ALPHAS = [0.1, 0.5, 1.0, 2.9999, 3.0, 3.1, 10.0, 18.03, 46.0, 60.0, 104.0, 128.0, 700.0, 1100.0]
SIDES = {1: (9,), 2: (5, 4), 3: (4, 3, 2)}


@pytest.fixture(autouse=True)
def _hundred_digits():
    with mpmath.workdps(100):
        yield


def true_leak(score, sides, target):
    """1 - softmax at `target`, without subtraction, for `score(key)` in real arithmetic."""
    peak = score(target)
    rest = mpmath.fsum(mpmath.exp(score(key) - peak) for key in product(*map(range, sides)) if key != target)
    return rest / (1 + rest)


def quadratic(alphas, centre):
    alphas, centre = [mpmath.mpf(alpha) for alpha in alphas], [mpmath.mpf(c) for c in centre]
    return lambda key: -mpmath.fsum(a * (k - c) ** 2 for a, k, c in zip(alphas, key, centre, strict=True))


def covers(bound, truth):
    return mpmath.mpf(bound) >= truth


def infinite_leak(alpha, dimensions):
    with mpmath.workdps(1200):
        theta = mpmath.jtheta(3, 0, mpmath.exp(-mpmath.mpf(alpha)))
        return 1 - theta**-dimensions


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_leak_is_bounded_on_both_sides_at_every_target(alpha, dimensions):
    sides = SIDES[dimensions]
    for target in product(*map(range, sides)):
        truth = true_leak(quadratic([alpha] * dimensions, target), sides, target)
        assert covers(leaked_mass(alpha, dimensions), truth)
        assert mpmath.mpf(leak_at_least(alpha, sides)) <= truth


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_leak_is_the_theta_series_rounded_up_once(alpha, dimensions):
    bound, truth = leaked_mass(alpha, dimensions), infinite_leak(alpha, dimensions)
    assert covers(bound, truth)
    assert not covers(math.nextafter(bound, 0), truth)


def test_a_cancelling_formula_would_be_caught():
    q = math.exp(-46)
    theta = 1 + 2 * (q + q**4)
    assert 1 - 1 / theta**2 == 0.0
    assert not covers(1 - 1 / theta**2, infinite_leak(46.0, 2))
    assert not covers(2 * q, infinite_leak(46.0, 2))  # two neighbours forgotten


@pytest.mark.parametrize("alpha", ALPHAS)
def test_elementary_form_agrees(alpha):
    with mpmath.workdps(1200):
        q = mpmath.exp(-mpmath.mpf(alpha))
        elementary = 1 - (1 + 2 * (q + q**4 / (1 - q**5))) ** -2
    assert mpmath.mpf(math.nextafter(leaked_mass(alpha), 0)) <= elementary
    if alpha >= 18:
        assert leaked_mass(alpha) == pytest.approx(float(elementary), rel=1e-12, abs=5e-324)


@pytest.mark.parametrize("alpha", ALPHAS[:8])
def test_leak_of_a_large_grid_is_reached(alpha):
    ticks = torch.arange(-40, 41)
    squared = ticks[:, None] ** 2 + ticks**2
    attention = torch.softmax(-alpha * squared.double().flatten(), 0)
    off = attention[squared.flatten() > 0].sum().item()
    assert off == pytest.approx(leaked_mass(alpha), rel=1e-12)


@pytest.mark.parametrize("alpha", [0.1, 1.0, 5.0, 46.0])
@pytest.mark.parametrize("shift", [(-2, 1), (7, 2), (2, 9), (-3, -8)])
def test_targets_off_the_grid_leak_no_more_than_that_off_the_nearest_key(alpha, shift):
    nearest = tuple(min(max(c, 0), side - 1) for c, side in zip(shift, SIDES[2], strict=True))
    assert covers(leaked_mass(alpha), true_leak(quadratic([alpha] * 2, shift), SIDES[2], nearest))


@pytest.mark.parametrize("alphas", [(0.1, 4.0), (2.9, 3.0), (46.0, 30.0)])
@pytest.mark.parametrize("centre", [(2.25, 1.0), (1.5, 2.5), (0.0, -0.375), (4.4, 3.45), (-3.3, 5.0)])
def test_real_centres_and_different_sharpness(alphas, centre):
    nearest = tuple(min(max(round(c), 0), side - 1) for c, side in zip(centre, SIDES[2], strict=True))
    truth = true_leak(quadratic(alphas, centre), SIDES[2], nearest)
    assert covers(leaked_mass_diagonal(alphas, centre), truth)


def test_real_centres_are_tight():
    sides, centre = (61, 61), (30.25, 30.5)
    for alphas in ((0.2, 0.7), (2.99, 3.01)):
        truth = true_leak(quadratic(alphas, centre), sides, (30, 30))
        assert leaked_mass_diagonal(alphas, centre) == pytest.approx(float(truth), rel=1e-12)
        assert not covers(leaked_mass_diagonal(alphas), truth)  # the centre ignored


@pytest.mark.parametrize("matrix", [[[5.0, 2.0], [2.0, 3.0]], [[46.0, -40.0], [-40.0, 50.0]], [[3.0, 4.0], [0.0, 3.0]]])
def test_full_covariance(matrix):
    def score(key):
        d = mpmath.matrix([key[0] - 2, key[1] - 1])
        return -(d.T * mpmath.matrix(matrix) * d)[0]

    assert covers(leaked_mass_covariance(matrix), true_leak(score, SIDES[2], (2, 1)))


def test_smallest_eigenvalue():
    for size in (1, 2, 3):
        assert smallest_eigenvalue_at_least(7.0 * np.eye(size)) == pytest.approx(7, rel=1e-12)
    assert smallest_eigenvalue_at_least(7.0 * np.eye(3)) < 7
    assert 0 < smallest_eigenvalue_at_least([[2.0, 1.0], [1.0, 2.0]]) < 1
    for hopeless in ([[1.0, 1.0], [1.0, 1.0]], [[1.0, 2.0], [2.0, 1.0]], [[-1.0]], [[math.nan]], [[1.0, 0.0]]):
        with pytest.raises(AlphaError, match="C2A130 the inverse covariance"):
            leaked_mass_covariance(hopeless)


def test_positive_definite_is_decided_exactly():
    matrix = np.array([[4.0, 2.0, -1.0], [2.0, 3.0, 1.0], [-1.0, 1.0, 2.0]])  # determinant 5, pivots 4, 2, 5/8
    assert is_positive_definite(matrix)
    assert is_positive_definite(np.triu(matrix) + np.triu(matrix, 1))
    assert not is_positive_definite(matrix, 0.5)
    ulp = 2.0**-52
    for size in (1, 2, 3):
        ones = np.eye(size)
        assert is_positive_definite(ones, 1 - ulp)
        assert not is_positive_definite(ones, 1.0)
    assert is_positive_definite(np.array([[1.0, 1 - ulp], [1 - ulp, 1.0]]))
    assert not is_positive_definite(np.array([[1.0, 1.0], [1.0, 1.0]]))


@pytest.mark.parametrize("alpha", [0.3, 2.0, 46.0])
def test_enumerated_encoding_leaks_like_one_axis(alpha):
    sides, stride = (5, 4), 2 * 4 - 1
    target = (2, 1)

    def score(key):
        return -mpmath.mpf(alpha) * (stride * (key[0] - target[0]) + key[1] - target[1]) ** 2

    assert covers(leaked_mass(alpha, 1), true_leak(score, sides, target))


def test_leak_at_least_is_reached_in_a_corner():
    truth = true_leak(quadratic([1.5, 1.5], (0, 0)), (5, 4), (0, 0))
    bound = leak_at_least(1.5, (5, 4))
    assert mpmath.mpf(bound) <= truth < mpmath.mpf(math.nextafter(bound, 1))
    assert leak_at_least(1.0, (1, 1)) == 0
    assert 0.99 < leak_at_least(1e-8, (10**6, 10**6)) <= 1


def test_extremes():
    assert leaked_mass(1e300) == math.ulp(0.0)
    assert 1 - 1e-8 < leaked_mass(1e-9) <= 1
    assert leaked_mass(math.ulp(0.0)) == 1
    assert leaked_mass_diagonal([46.0], [0.5]) > 0.5


@pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan, math.inf])
def test_alpha_must_be_positive_and_finite(alpha):
    for bound in (leaked_mass, lambda alpha: leak_at_least(alpha, (3,))):
        with pytest.raises(AlphaError, match="C2A130 alpha="):
            bound(alpha)


def test_centre_must_match():
    for centre in ([0.0], [0.0, math.nan]):
        with pytest.raises(UsageError, match="C2A007 centre"):
            leaked_mass_diagonal([1.0, 1.0], centre)
