"""How far a softmax, and the mean that it weighs, are from their real values when computed in floating point."""

import math

from flint import arb, ctx

from conv2attn.bounds.directed import BALL_PRECISION, up
from conv2attn.bounds.formats import EXP_ULPS, accumulator_of, storage_of
from conv2attn.bounds.rounding import RoundingBound, gamma, operand_error

CUT_BITS = 24  # a weight is cut where it is certainly below the smallest normal number times 2^24


def cut_mass(keys: int, format_name: str, score_error: float = 0.0) -> float:
    """Upper bound on the mass that `conv2attn.basis.cut_softmax` takes from one row: the weights that it sets to 0.

    A score is dropped where it is below the largest of its row by more than `-log(tiny 2^24)`, so that its weight is
    at most `tiny 2^24 exp(2 e)` for scores off by e.

    Args:
        keys: number of keys of the row.
        format_name: format of the result; scores are computed in that of its sums.
        score_error: largest error of a score after its maximum was subtracted.
    Returns:
        The bound, rounded up.
    """
    with ctx.workprec(BALL_PRECISION):
        tiny = arb(accumulator_of(format_name).smallest_normal)
        return up(keys * tiny * 2**CUT_BITS * (2 * arb(score_error)).exp())


def softmax_error(
    keys: int, format_name: str, score_error: float = 0.0, exp_ulps: float = EXP_ULPS["softmax"]
) -> float:
    """Upper bound on the sum over keys of |computed weight - softmax weight|, for any scores.

    Each weight is off by a factor of at most exp(2 e) (1 + d) / ((1 - d) (1 - gamma)) (1 + 3 u), for scores off by e,
    exp by d, the sum of `keys` terms by gamma, and the reciprocal, its product and the cast by u each. Underflow,
    gradual or flushed, loses less than the smallest normal number each time, and `cut_mass` is cut.

    Args:
        score_error: largest error of a score after its maximum was subtracted.
    Returns:
        The bound, rounded up; at most 2 only while it says something.
    Raises:
        UsageError: keys times the unit roundoff is not less than 1.
    Source: Blanchard, Higham and Higham 2021, Computing the log-sum-exp and softmax functions, Sec. 4.
    """
    inner, storage = accumulator_of(format_name), storage_of(format_name)
    with ctx.workprec(BALL_PRECISION):
        relative = 2 * arb(exp_ulps) * inner.unit_roundoff
        summed = arb(gamma(keys, inner.unit_roundoff))
        if not (relative + summed < 1):
            return math.inf
        numerator = (2 * arb(score_error)).exp() * (1 + relative) * (1 + arb(storage.unit_roundoff))
        numerator *= (1 + arb(inner.unit_roundoff)) * (1 + arb(inner.unit_roundoff))
        underflow = keys * ((exp_ulps + 1) * arb(inner.smallest_normal) + arb(storage.smallest_subnormal))
        underflow += arb(cut_mass(keys, format_name, score_error))
        return up(numerator / ((1 - relative) * (1 - summed)) - 1 + 2 * underflow)


def soft_mixing_bound(
    keys: int, format_name: str, score_error: float = 0.0, exp_ulps: float = EXP_ULPS["softmax"]
) -> RoundingBound:
    """Bound on |computed sum over keys of weight * x - the same in real arithmetic|, for any scores.

    `softmax_error`, then a dot product of `keys` terms with weights of sum at most 1 plus that, then a cast. For x
    that is 0 or normal, underflow loses less than the smallest normal number in each product and sum.

    Returns:
        A bound of `factor * max |x| + absolute`.
    Raises:
        UsageError: keys times the unit roundoff is not less than 1.
    """
    inner, storage = accumulator_of(format_name), storage_of(format_name)
    with ctx.workprec(BALL_PRECISION):
        weights = arb(softmax_error(keys, format_name, score_error, exp_ulps))
        cast = 0.0 if storage == inner else storage.unit_roundoff
        product = (1 + arb(gamma(keys, inner.unit_roundoff))) * (1 + arb(cast)) * (1 + arb(operand_error(format_name)))
        factor = weights + (1 + weights) * (product - 1)
        return RoundingBound(
            up(factor), up((2 * keys + 1) * arb(inner.smallest_normal) + arb(storage.smallest_subnormal))
        )
