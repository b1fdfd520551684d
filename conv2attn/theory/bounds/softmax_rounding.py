"""The error of a softmax computed in floating point: the total over the keys of one row."""

import math

from flint import arb, ctx

from conv2attn.theory.bounds.claimed import WITHOUT_THEOREM, Claimed
from conv2attn.theory.bounds.directed import BALL_PRECISION, up
from conv2attn.theory.bounds.formats import EXP_ULPS, accumulator_of, storage_of
from conv2attn.theory.bounds.sum_rounding import gamma

CUT_BITS = 24  # only weights below the smallest normal number times 2^24 are cut


def cut_mass(keys: int, format_name: str, score_error: float = 0.0) -> Claimed:
    """Upper bound on the total weight that `theory.basis.cut_softmax` sets to 0 in one row.

    A score is dropped if it is below the largest of its row by more than `-log(tiny 2^24)`. If scores have an error of
    at most e, its weight is at most `tiny 2^24 exp(2 e)`.

    Args:
        keys: number of keys of the row.
        format_name: format of the result; scores are computed in its accumulator.
        score_error: largest error of a score after its maximum was subtracted.
    Returns:
        The bound, rounded up.
    """
    # The cut compares two computed scores, so their difference may be off by twice the error of one.
    with ctx.workprec(BALL_PRECISION):
        tiny = arb(accumulator_of(format_name).smallest_normal)
        return Claimed(up(keys * tiny * 2**CUT_BITS * (2 * arb(score_error)).exp()), {WITHOUT_THEOREM})


def softmax_error(
    keys: int, format_name: str, score_error: float = 0.0, exp_ulps: float = EXP_ULPS["softmax"]
) -> Claimed:
    """Upper bound on the sum over keys of |computed weight - softmax weight|, for any scores of bounded error.

    It is `weights_error` for exponentials with a relative error d and an absolute error eta. They cover exp itself,
    scores off by e, and the weights that are cut.

    Args:
        keys: number of keys of the row.
        score_error: e, the largest error of a score after its maximum was subtracted.
    Returns:
        The bound, rounded up; infinity where `weights_error` is. Two rows of weights never differ by more than 2, so a
        bound above 2 says nothing.
    Raises:
        UsageError: keys times the unit roundoff is not less than 1 (C2A001).
    Source: claim SOFT of proofs/, and `cut_mass`, which has no theorem; Blanchard, Higham and Higham 2021, Computing
        the log-sum-exp and softmax functions, Sec. 4.
    """
    inner = accumulator_of(format_name)
    with ctx.workprec(BALL_PRECISION):
        tiny = arb(inner.smallest_normal)
        off = (1 + 2 * arb(exp_ulps) * inner.unit_roundoff) * arb(score_error).exp() - 1
        # The largest exponential of a row is 1. So the sum is at least 1, and dividing by it enlarges no error.
        cut = cut_mass(keys, format_name, score_error)
        off += keys * (exp_ulps + 1) * tiny + arb(cut)
        lost = (1 + arb(gamma(keys, inner.unit_roundoff))) * 2 * keys * tiny
        return Claimed(up(weights_error(keys, format_name, off, lost)), {"SOFT", *cut.claims})


def weights_error(keys: int, format_name: str, off: arb, lost: arb) -> arb:
    """Upper bound on the sum over keys of |computed weight - weight|, from the errors of the exponentials.

    Let D = `off`. The sum of the exponentials has the relative error g = gamma_keys and the absolute error
    lambda = `lost`. Each quotient has the relative error v and the absolute error mu: the reciprocal, its product and
    the cast, u each. The bound is ((v + g)(1 + D) + 2 D + lambda) / ((1 - g)(1 - D) - lambda) + keys mu. Underflow,
    gradual or flushed, loses less than the smallest normal number each time.

    Args:
        off: total error of the exponentials, as a fraction of their sum.
        lost: absolute error of the computed sum.
    Returns:
        The bound; infinity unless g <= 1 and (1 - g)(1 - D) > lambda.
    """
    inner, storage = accumulator_of(format_name), storage_of(format_name)
    u, cast, tiny = arb(inner.unit_roundoff), 1 + arb(storage.unit_roundoff), arb(inner.smallest_normal)
    summed = arb(gamma(keys, inner.unit_roundoff))
    least = (1 - summed) * (1 - off) - lost
    # Written as what must hold: a comparison of balls is False if it is undecided, or if one is not a number.
    if not (summed <= 1 and least > 0):
        return arb(math.inf)
    # One rounding each for the reciprocal, for its product with the exponential, and for the cast to the stored format.
    quotients = (1 + u) ** 2 * cast - 1
    underflow = cast * (3 + 2 * u) * tiny + tiny + storage.smallest_subnormal
    return ((quotients + summed) * (1 + off) + 2 * off + lost) / least + keys * underflow
