"""What no licence covers of leaks: a lower bound, heads between pixels and off the grid, certified eigenvalues."""

import math
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
import torch

from conv2attn.theory.bounds import (
    FORMATS,
    Head,
    accumulator_of,
    is_positive_definite,
    leaked_mass,
    leaked_mass_diagonal,
    smallest_eigenvalue_at_least,
)

mpf = mpmath.mpf
SIDES = {1: (9,), 2: (5, 4), 3: (4, 3, 2)}


def true_leak(score, sides, target):
    """1 - softmax at `target`, without subtraction, for `score(key)` in real arithmetic."""
    peak = score(target)
    rest = mpmath.fsum(mpmath.exp(score(key) - peak) for key in product(*map(range, sides)) if key != target)
    return rest / (1 + rest)


def quadratic(alphas, centre):
    alphas, centre = [mpf(alpha) for alpha in alphas], [mpf(c) for c in centre]
    return lambda key: -mpmath.fsum(a * (k - c) ** 2 for a, k, c in zip(alphas, key, centre, strict=True))


def nearest_key(centre):
    return tuple(min(max(round(c), 0), side - 1) for c, side in zip(centre, SIDES[2], strict=True))


def test_extremes():
    assert leaked_mass(1e300) == math.ulp(0.0)
    assert 1 - 1e-8 < leaked_mass(1e-9) <= 1
    assert leaked_mass(math.ulp(0.0)) == 1
    assert leaked_mass_diagonal([46.0], [0.5]) > 0.5


@pytest.mark.parametrize("alphas", [(0.1, 4.0), (2.9, 3.0), (46.0, 30.0)])
@pytest.mark.parametrize("centre", [(2.25, 1.0), (0.0, -0.375), (4.4, 3.45), (-3.3, 5.0), (7.0, 2.0), (-3.0, -8.0)])
def test_targets_off_the_grid_leak_no_more_than_that_off_the_nearest_key(alphas, centre):
    truth = true_leak(quadratic(alphas, centre), SIDES[2], nearest_key(centre))
    assert truth <= leaked_mass_diagonal(alphas, centre)


@pytest.mark.parametrize("centre", [(2.25, 1.0), (1.875, 2.375), (-3.0, 6.5), (9.0, -4.25)])
def test_computed_scores_fall_off_as_said(centre):
    """Every rival n pixels from the nearest key scores lower by alpha' |n|^2 or more, as float32 computes it."""
    alpha, nearest, shifts = 19.3, nearest_key(centre), [c - round(c) for c in centre]
    distance = sum((c - n) ** 2 for c, n in zip(centre, nearest, strict=True))
    sharpness = Fraction(Head(alpha, tuple(shifts), distance).sharpness("float32"))

    def score(key):
        away = torch.tensor(key, dtype=torch.float32) - torch.tensor(centre, dtype=torch.float32)
        return Fraction((-torch.tensor(alpha, dtype=torch.float32) * away.square().sum()).item())

    for key in product(*map(range, SIDES[2])):
        far = sum((k - n) ** 2 for k, n in zip(key, nearest, strict=True))
        assert score(nearest) - score(key) >= sharpness * far


@pytest.mark.parametrize(
    ("shifts", "distance"), [((0.75,), 1.0), ((0.0, -0.625), 1.0), ((0.25,), -1.0), ((math.nan,), 1.0)]
)
def test_shifts_and_distances_of_no_head_leave_no_sharpness(shifts, distance):
    assert Head(46.0, shifts, distance).sharpness("float32") == 0.0


@pytest.mark.parametrize("name", FORMATS)
def test_a_score_that_may_be_infinite_leaves_no_sharpness(name):
    largest = accumulator_of(name).largest
    assert Head(largest / 2, (0.0, 0.0), 1.0).sharpness(name) > largest / 4
    assert Head(largest / 2, (0.0, 0.0), math.nextafter(1.0, 2.0)).sharpness(name) == 0.0


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
        assert smallest_eigenvalue_at_least(7 * ones) == pytest.approx(7, rel=1e-12)
        assert smallest_eigenvalue_at_least(7 * ones) < 7
    assert is_positive_definite(np.array([[1.0, 1 - ulp], [1 - ulp, 1.0]]))


def test_a_guess_of_the_eigenvalue_that_is_too_high_is_lowered_until_it_is_certified(monkeypatch):
    monkeypatch.setattr("numpy.linalg.eigvalsh", lambda matrix: np.array([2.5, 3.0]))
    assert smallest_eigenvalue_at_least([[2.0, 0.0], [0.0, 3.0]]) == 2.5 - 3 / 4  # 3 times powers of two, from 2^-50 on
    assert smallest_eigenvalue_at_least([[2.5, 0.0], [0.0, 3.0]]) == 2.5 - 3 * 2.0**-50


def test_a_nearly_singular_matrix_has_a_certified_eigenvalue():
    """Ones everywhere and c more on the diagonal: the smallest eigenvalue is c, near the rounding of the largest."""
    exact = Fraction(1, 2**40)
    matrix = np.ones((24, 24)) + float(exact) * np.eye(24)
    found = smallest_eigenvalue_at_least(matrix)
    assert exact / 2 < Fraction(found) <= exact
    assert is_positive_definite(matrix, found)
