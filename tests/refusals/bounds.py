"""Arguments for which no bound is known."""

import math

import numpy as np

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
    leak_reached,
    leaked_mass,
    leaked_mass_diagonal,
    mixing_effect,
    smallest_eigenvalue_at_least,
    target_rounds_to_one_threshold,
)

NONE, NAN, INF = RoundingBound(0.0, 0.0), math.nan, math.inf
NOT_SQUARE = ([1.0], [[[1.0]]], [], [[]], np.empty((0, 0)), [[5.0, 0.0]], [[1.0], [1.0]])
NOT_FINITE = ([[NAN]], [[5.0, NAN], [NAN, 5.0]], [[5.0, 0.0], [0.0, INF]])
NOT_DEFINITE = ([[1.0, 1.0], [1.0, 1.0]], [[0.0]], [[-1.0]], [[1.0, 2.0], [2.0, 1.0]])
OF_ALPHA = (
    leaked_mass,
    lambda alpha: leak_reached(alpha, (0.0,)),
    lambda alpha: Head(alpha, (0.0,)).sharpness("float32"),
    lambda alpha: computed_leak(alpha, 2, "float32", 2.0),
)
OF_SIZE = {
    "leak": lambda bad: mixing_effect(bad, 1.0),
    "input_range": lambda bad: mixing_effect(0.0, bad),
    "factor": lambda bad: mixing_effect(0.0, 1.0, RoundingBound(bad, 0.0)),
    "absolute": lambda bad: mixing_effect(0.0, 1.0, RoundingBound(0.0, bad)),
    "weight_sum": lambda bad: difference_bound(bad, 0.0, 1.0, NONE, NONE),
}
UNIT = 2.0**-24


def of_each(call, *given):
    """The call with each argument."""
    return [lambda each=each: call(each) for each in given]


REFUSALS = {
    AlphaError: {
        "C2A130 .* is not a finite square matrix": of_each(smallest_eigenvalue_at_least, *NOT_SQUARE, *NOT_FINITE),
        "C2A130 .* is not certified positive definite": of_each(smallest_eigenvalue_at_least, *NOT_DEFINITE),
        "C2A130 alpha=": [row for call in OF_ALPHA for row in of_each(call, 0.0, -1.0, NAN, INF)],
        "C2A130 .* does not make the target's weight exactly 1": lambda: hard_mixing_bound(17.0, 2, "float32", 2.0),
        "C2A130": lambda: hard_mixing_bound(target_rounds_to_one_threshold("float32", 2, 2.0), 2, "float32", 2.0**18),
    },
    UsageError: {
        "C2A007 centre": of_each(lambda centre: leaked_mass_diagonal([1.0, 1.0], centre), [0.0], [0.0, NAN]),
        **{
            f"C2A001 {name}={bad!r} is not a finite number of at least 0": lambda call=call, bad=bad: call(bad)
            for name, call in OF_SIZE.items()
            for bad in (NAN, INF, -1.0)
        },
        **{
            rf"C2A001 \|bias\|={abs(bad)!r} is not a finite number": of_each(
                lambda bias: difference_bound(1.0, bias, 1.0, NONE, NONE), *signs
            )
            for bad, *signs in ((NAN, NAN), (INF, INF, -INF))
        },
        **{
            f"C2A001 {name}=nan is not a finite number": [
                lambda bad=bad: difference_bound(1.0, 0.0, 1.0, bad, NONE),
                lambda bad=bad: difference_bound(1.0, 0.0, 1.0, NONE, bad),
            ]
            for name, bad in (("factor", RoundingBound(NAN, 0.0)), ("absolute", RoundingBound(0.0, NAN)))
        },
        "C2A001 gamma": of_each(lambda given: gamma(*given), (-1, UNIT), (1, 0.0), (1, -1.0), (1, 1.0), (2**24, UNIT)),
        **{
            f"C2A001 gamma is not defined for {n + 1} operations at": lambda n=n: convolution_bound(n, "float32")
            for n in (2**24, 2**30)
        },
        "C2A001 no bound covers casts=65537 in bfloat16": lambda: convolution_bound(9, "bfloat16", casts=2**16 + 1),
        "C2A007 centre .* is not one finite number for each of 0 axes": [
            lambda: leaked_mass_diagonal([]),
            lambda: leaked_mass(46.0, 0),
        ],
        "C2A002 format 'int8'": lambda: format_of("int8"),
    },
}
