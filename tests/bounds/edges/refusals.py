"""What no bound is given for, each with the sentence that says why."""

import math
from fractions import Fraction

import numpy as np
import pytest

from conv2attn.bounds import (
    RoundingBound,
    difference_bound,
    dot_product_terms,
    exact_absolute_features,
    leaked_mass,
    leaked_mass_diagonal,
    mixing_effect,
    smallest_eigenvalue_at_least,
    softmax_error,
)
from conv2attn.bounds.covariance import is_positive_definite
from conv2attn.errors import AlphaError, UsageError

NONE = RoundingBound(0.0, 0.0)
NOT_SQUARE = ([1.0], [[[1.0]]], [], [[]], np.empty((0, 0)), [[5.0, 0.0]], [[1.0], [1.0]])
NOT_FINITE = ([[math.nan]], [[5.0, math.nan], [math.nan, 5.0]], [[5.0, 0.0], [0.0, math.inf]])


@pytest.mark.parametrize("matrix", [*NOT_SQUARE, *NOT_FINITE], ids=str)
def test_a_covariance_is_a_finite_square_matrix(matrix):
    with pytest.raises(AlphaError, match=r"C2A130 the inverse covariance .* is not a finite square matrix"):
        smallest_eigenvalue_at_least(matrix)


@pytest.mark.parametrize("matrix", [[[1.0, 1.0], [1.0, 1.0]], [[0.0]], [[-1.0]], [[1.0, 2.0], [2.0, 1.0]]], ids=str)
def test_a_covariance_is_positive_definite(matrix):
    assert is_positive_definite(np.array(matrix)) is False
    with pytest.raises(AlphaError, match=r"C2A130 the inverse covariance .* is not certified positive definite"):
        smallest_eigenvalue_at_least(matrix)


def test_a_head_has_axes():
    for call in (lambda: leaked_mass_diagonal([]), lambda: leaked_mass(46.0, 0)):
        with pytest.raises(UsageError, match=r"C2A007 centre .* is not one finite number for each of 0 axes"):
            call()


@pytest.mark.parametrize("groups", [0, -1])
def test_groups_are_counted_from_one(groups):
    with pytest.raises(UsageError, match=f"C2A007 {groups} groups do not divide 6 channels"):
        dot_product_terms(6, (3, 3), groups=groups)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_the_size_that_is_refused_is_named(bad):
    calls = {
        "leak": lambda: mixing_effect(bad, 1.0),
        "input_range": lambda: mixing_effect(0.0, bad),
        "factor": lambda: mixing_effect(0.0, 1.0, RoundingBound(bad, 0.0)),
        "absolute": lambda: mixing_effect(0.0, 1.0, RoundingBound(0.0, bad)),
        "weight_sum": lambda: difference_bound(bad, 0.0, 1.0, NONE, NONE),
    }
    for name, call in calls.items():
        with pytest.raises(UsageError, match=f"C2A001 {name}={bad!r} is not a finite number of at least 0"):
            call()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_bias_is_finite(bad):
    with pytest.raises(UsageError, match=rf"C2A001 \|bias\|={abs(bad)!r} is not a finite number"):
        difference_bound(1.0, bad, 1.0, NONE, NONE)


@pytest.mark.parametrize("share", [Fraction(51, 100), Fraction(55, 100), Fraction(65, 100), 1 - Fraction(1, 2**24)])
def test_no_softmax_error_where_the_sum_may_lose_everything(share):
    keys = int(share * 2**24)  # gamma is above 1 from half of 1 / u on
    assert softmax_error(keys, "float32") == math.inf
    assert softmax_error(int(Fraction(49, 100) * 2**24), "float32") < math.inf


def test_absolute_features_at_the_ends_of_the_range():
    assert exact_absolute_features(46.0, 1, 1, "float32") is False
    assert exact_absolute_features(2.0**127, 0, 2, "float32")  # one pixel: every feature but alpha is 0
    assert exact_absolute_features(2.0**126, 1, 1, "float32")  # sums of 3 alpha are below 2^128
    assert not exact_absolute_features(2.0**125, 1, 3, "float32")  # those of 9 alpha are not
