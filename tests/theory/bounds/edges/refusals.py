"""What no bound is given for, each with the sentence that says why."""

import math

import numpy as np
import pytest

from conv2attn.theory.bounds import (
    is_positive_definite,
    softmax_error,
)

NOT_DEFINITE = ([[1.0, 1.0], [1.0, 1.0]], [[0.0]], [[-1.0]], [[1.0, 2.0], [2.0, 1.0]])


@pytest.mark.parametrize("matrix", NOT_DEFINITE, ids=str)
def test_a_covariance_is_positive_definite(matrix):
    assert is_positive_definite(np.array(matrix)) is False


@pytest.mark.parametrize("share", [0.51, 0.55, 0.65, 1 - 2.0**-24])
def test_no_softmax_error_where_the_sum_may_lose_everything(share):
    assert softmax_error(int(share * 2**24), "float32") == math.inf  # gamma is above 1 from half of 1 / u on
    assert softmax_error(int(0.49 * 2**24), "float32") < math.inf
    assert softmax_error(int(share * 2**24), "float32", 1.0) == math.inf  # nor where exponentials are off by themselves
