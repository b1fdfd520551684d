"""What no bound is given for, each with the sentence that says why."""

import math

import numpy as np
import pytest

from conv2attn.errors import AlphaError, UsageError
from conv2attn.theory.bounds import (
    Head,
    RoundingBound,
    computed_leak,
    convolution_bound,
    difference_bound,
    format_of,
    gamma,
    hard_mixing_bound,
    is_positive_definite,
    leak_reached,
    leaked_mass,
    leaked_mass_diagonal,
    mixing_effect,
    smallest_eigenvalue_at_least,
    softmax_error,
    target_rounds_to_one_threshold,
)

NONE = RoundingBound(0.0, 0.0)
NOT_SQUARE = ([1.0], [[[1.0]]], [], [[]], np.empty((0, 0)), [[5.0, 0.0]], [[1.0], [1.0]])
NOT_FINITE = ([[math.nan]], [[5.0, math.nan], [math.nan, 5.0]], [[5.0, 0.0], [0.0, math.inf]])
NOT_DEFINITE = ([[1.0, 1.0], [1.0, 1.0]], [[0.0]], [[-1.0]], [[1.0, 2.0], [2.0, 1.0]])
OF_ALPHA = {
    "leaked_mass": leaked_mass,
    "leak_reached": lambda alpha: leak_reached(alpha, (0.0,)),
    "sharpness": lambda alpha: Head(alpha, (0.0,)).sharpness("float32"),
    "computed_leak": lambda alpha: computed_leak(alpha, 2, "float32", 2.0),
}
OF_SIZE = {
    "leak": lambda bad: mixing_effect(bad, 1.0),
    "input_range": lambda bad: mixing_effect(0.0, bad),
    "factor": lambda bad: mixing_effect(0.0, 1.0, RoundingBound(bad, 0.0)),
    "absolute": lambda bad: mixing_effect(0.0, 1.0, RoundingBound(0.0, bad)),
    "weight_sum": lambda bad: difference_bound(bad, 0.0, 1.0, NONE, NONE),
}
REFUSED = [
    *[(smallest_eigenvalue_at_least, [m], "C2A130 .* is not a finite square matrix") for m in NOT_SQUARE + NOT_FINITE],
    *[(smallest_eigenvalue_at_least, [m], "C2A130 .* is not certified positive definite") for m in NOT_DEFINITE],
    *[(leaked_mass_diagonal, [[1.0, 1.0], c], "C2A007 centre") for c in ([0.0], [0.0, math.nan])],
    *[(call, [alpha], "C2A130 alpha=") for call in OF_ALPHA.values() for alpha in (0.0, -1.0, math.nan, math.inf)],
    *[
        (call, [bad], f"C2A001 {name}={bad!r} is not a finite number of at least 0")
        for name, call in OF_SIZE.items()
        for bad in (math.nan, math.inf, -1.0)
    ],
    *[
        (difference_bound, [1.0, bad, 1.0, NONE, NONE], rf"C2A001 \|bias\|={abs(bad)!r} is not a finite number")
        for bad in (math.nan, math.inf, -math.inf)
    ],
    *[
        (difference_bound, [1.0, 0.0, 1.0, *bounds], f"C2A001 {name}=nan is not a finite number")
        for name, bad in (("factor", RoundingBound(math.nan, 0.0)), ("absolute", RoundingBound(0.0, math.nan)))
        for bounds in ((bad, NONE), (NONE, bad))
    ],
    *[
        (gamma, given, "C2A001 gamma")
        for given in ((-1, 2.0**-24), (1, 0.0), (1, -1.0), (1, 1.0), (2**24, 2.0**-24))
    ],
    *[(convolution_bound, [n, "float32"], f"C2A001 gamma of {n + 1} operations at") for n in (2**24, 2**30)],
    (lambda casts: convolution_bound(9, "bfloat16", casts=casts), [2**16 + 1], "C2A001 casts=65537 in bfloat16"),
    (leaked_mass_diagonal, [[]], "C2A007 centre .* is not one finite number for each of 0 axes"),
    (leaked_mass, [46.0, 0], "C2A007 centre .* is not one finite number for each of 0 axes"),
    (format_of, ["int8"], "C2A002 format 'int8'"),
    (hard_mixing_bound, [17.0, 2, "float32", 2.0], "C2A130 .* does not make the target's weight exactly 1"),
    (hard_mixing_bound, [target_rounds_to_one_threshold("float32", 2, 2.0), 2, "float32", 2.0**18], "C2A130"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "given", "message"), REFUSED)
def test_what_is_meant_by_nobody_is_refused(call, given, message):
    with pytest.raises(AlphaError if "C2A130" in message else UsageError, match=message):
        call(*given)


@pytest.mark.parametrize("matrix", NOT_DEFINITE, ids=str)
def test_a_covariance_is_positive_definite(matrix):
    assert is_positive_definite(np.array(matrix)) is False


@pytest.mark.parametrize("share", [0.51, 0.55, 0.65, 1 - 2.0**-24])
def test_no_softmax_error_where_the_sum_may_lose_everything(share):
    assert softmax_error(int(share * 2**24), "float32") == math.inf  # gamma is above 1 from half of 1 / u on
    assert softmax_error(int(0.49 * 2**24), "float32") < math.inf
    assert softmax_error(int(share * 2**24), "float32", 1.0) == math.inf  # nor where exponentials are off by themselves
