"""Full covariances between pixels: how much of their sharpness the shift takes, exactly."""

import math
from itertools import product

import mpmath
import numpy as np
import pytest

from conv2attn.bounds import leaked_mass, leaked_mass_covariance, smallest_eigenvalue_at_least
from conv2attn.bounds.covariance import _length_at_most
from conv2attn.errors import UsageError

MATRIX = [[9.0, 3.0], [1.0, 6.0]]  # of which only the symmetric part, with 2 and 2, matters
SHIFT = (0.125, -0.0625)


def test_the_length_of_the_shift_under_the_symmetric_part_is_rounded_up():
    with mpmath.workdps(50):
        for vector in ((1.0, 2.0), (1.0, 0.0), (0.0, -1.0), (0.125, -0.375)):
            exact = [9 * vector[0] + 2 * vector[1], 2 * vector[0] + 6 * vector[1]]
            length = mpmath.sqrt(exact[0] ** 2 + exact[1] ** 2)
            found = _length_at_most(MATRIX, vector)
            assert math.nextafter(found, 0) < length <= found
    assert _length_at_most(MATRIX, (0.0, 0.0)) == 0.0
    assert _length_at_most([[3.0, 0.0], [0.0, 4.0]], (1.0, 1.0)) == 5.0


def test_the_shift_takes_twice_that_length_from_the_sharpness():
    least = smallest_eigenvalue_at_least(MATRIX)
    left = least - 2 * _length_at_most(MATRIX, SHIFT)
    assert 0 < left < least
    assert leaked_mass_covariance(MATRIX, SHIFT) == pytest.approx(leaked_mass(left, 2), rel=1e-12)
    assert leaked_mass_covariance(MATRIX, (0.0, 0.0)) == leaked_mass_covariance(MATRIX) == leaked_mass(least, 2)
    three = 8.0 * np.eye(3)
    assert leaked_mass_covariance(three, (0.0, 0.25, 0.0)) == pytest.approx(leaked_mass(4.0, 3), rel=1e-12)
    assert leaked_mass_covariance([[8.0]], (0.25,)) == pytest.approx(leaked_mass(4.0, 1), rel=1e-12)


def test_what_is_left_is_rounded_down_and_must_be_positive():
    least = smallest_eigenvalue_at_least([[8.0]])
    assert leaked_mass_covariance([[8.0]], (2.0**-60,)) == leaked_mass(math.nextafter(least, 0), 1)
    assert leaked_mass_covariance([[8.0]], (least / 16,)) == 1.0  # exactly nothing is left
    assert leaked_mass_covariance([[1.0]], (0.25,)) == pytest.approx(leaked_mass(0.5, 1), rel=1e-12)


def test_the_leak_between_pixels_is_covered():
    symmetric = mpmath.matrix([[9, 2], [2, 6]])

    def weight(key):
        away = mpmath.matrix([key[0] - 2 + SHIFT[0], key[1] - 2 + SHIFT[1]])
        return mpmath.exp(-(away.T * symmetric * away)[0])

    weights = {key: weight(key) for key in product(range(5), range(5))}
    leak = 1 - weights.pop((2, 2)) / (sum(weights.values()) + weight((2, 2)))
    assert leak <= leaked_mass_covariance(MATRIX, SHIFT)
    assert leak <= leaked_mass_covariance(MATRIX, [-s for s in SHIFT])


def test_nothing_is_claimed_where_another_key_may_weigh_as_much():
    assert leaked_mass_covariance([[8.0]], (0.5,)) == 1.0
    assert leaked_mass_covariance(MATRIX, (0.25, 0.25)) == 1.0


@pytest.mark.parametrize("shift", [(0.0,), (0.0, 0.0, 0.0), (), (math.nan, 0.0), (0.0, math.inf)], ids=str)
def test_a_shift_is_one_finite_number_for_each_axis(shift):
    with pytest.raises(UsageError, match=r"C2A007 shift .* is not one finite number for each of 2 axes"):
        leaked_mass_covariance(MATRIX, shift)
