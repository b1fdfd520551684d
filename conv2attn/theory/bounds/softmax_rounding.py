"""How far a softmax, and the mean that it weighs, are from their real values when computed in floating point."""

import math

from flint import arb, ctx

from conv2attn.theory.bounds.claimed import WITHOUT_THEOREM, Claimed
from conv2attn.theory.bounds.directed import BALL_PRECISION, up
from conv2attn.theory.bounds.formats import EXP_ULPS, accumulator_of, storage_of
from conv2attn.theory.bounds.sum_rounding import gamma

CUT_BITS = 24  # a weight is cut where it is certainly below the smallest normal number times 2^24


def cut_mass(keys: int, format_name: str, score_error: float = 0.0) -> Claimed:
    """Upper bound on the mass that `theory.basis.cut_softmax` takes from one row: the weights that it sets to 0.

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
        return Claimed(up(keys * tiny * 2**CUT_BITS * (2 * arb(score_error)).exp()), {WITHOUT_THEOREM})


def softmax_error(
    keys: int, format_name: str, score_error: float = 0.0, exp_ulps: float = EXP_ULPS["softmax"]
) -> Claimed:
    """Upper bound on the sum over keys of |computed weight - softmax weight|, for any scores off by at most an amount.

    `weights_error` for exponentials off by a fraction d and an amount eta (exp itself, scores off by e, what is cut).

    Args:
        score_error: largest error of a score after its maximum was subtracted.
    Returns:
        The bound, rounded up; at most 2 only while it says something, infinity where D > 1 or the sum may lose half.
    Raises:
        UsageError: keys times the unit roundoff is not less than 1.
    Source: proved as claim SOFT of proofs/; Blanchard, Higham and Higham 2021, Computing the log-sum-exp and softmax
        functions, Sec. 4.
    """
    inner = accumulator_of(format_name)
    with ctx.workprec(BALL_PRECISION):
        tiny = arb(inner.smallest_normal)
        off = (1 + 2 * arb(exp_ulps) * inner.unit_roundoff) * arb(score_error).exp() - 1
        off += keys * (exp_ulps + 1) * tiny + arb(cut_mass(keys, format_name, score_error))
        lost = (1 + arb(gamma(keys, inner.unit_roundoff))) * 2 * keys * tiny
        return Claimed(up(weights_error(keys, format_name, off, lost)), {"SOFT"})


def weights_error(keys: int, format_name: str, off: arb, lost: arb) -> arb:
    """The sum of |computed weight - weight| over so many keys, whose exponentials are off by `off` of their sum.

    With D = `off`, their sum off by g = gamma and lambda = `lost`, each quotient by v and mu (the reciprocal, its
    product and the cast, u each), it is ((v + g)(1 + D) + 2 D + lambda) / ((1 - g)(1 - D) - lambda) + keys mu.
    Underflow, gradual or flushed, loses less than the smallest normal number each time.

    Returns:
        An upper bound; infinity where D > 1 or the sum may lose half.
    """
    inner, storage = accumulator_of(format_name), storage_of(format_name)
    u, cast, tiny = arb(inner.unit_roundoff), 1 + arb(storage.unit_roundoff), arb(inner.smallest_normal)
    summed = arb(gamma(keys, inner.unit_roundoff))
    least = (1 - summed) * (1 - off) - lost
    # Asked in this way round, since a ball that may be either, or no number, answers False to both.
    if not (summed <= 1 and least > 0):
        return arb(math.inf)
    # One rounding each for the reciprocal, for its product with the exponential, and for the cast to the stored format.
    quotients = (1 + u) ** 2 * cast - 1
    underflow = cast * (3 + 2 * u) * tiny + tiny + storage.smallest_subnormal
    return ((quotients + summed) * (1 + off) + 2 * off + lost) / least + keys * underflow
