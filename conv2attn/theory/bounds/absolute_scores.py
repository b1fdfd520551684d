"""Rounding of scores that are inner products of absolute features, as the sdpa engine computes them.

A query has the features (2 alpha c, -alpha), where c is its site plus the head's offset. A key k has (k, |k|^2). Their
dot product is `-alpha |k - c|^2 + alpha |c|^2`; the softmax does not see the last term. Both positions are integers,
counted from the middle of the grid, at most L in each coordinate.
"""

import math

from flint import arb, ctx

from conv2attn.theory.bounds.claimed import WITHOUT_THEOREM, Claimed
from conv2attn.theory.bounds.directed import BALL_PRECISION, up
from conv2attn.theory.bounds.formats import accumulator_of, format_of
from conv2attn.theory.bounds.sum_rounding import gamma


def exact_absolute_features(alpha: float, largest_coordinate: int, dimensions: int, format_name: str) -> bool:
    """Whether every feature and every score is computed without any rounding, in any order of summation.

    For alpha a power of two and n = `dimensions` axes. Features are alpha times integers up to 2 L, and integers up to
    n L^2. Partial sums of a score are alpha times integers up to 2 n L^2 + n L^2. An integer up to 2^p fits a
    significand of p bits: the features that of the format, the sums that of the accumulator. Alpha must neither
    overflow nor underflow.

    Returns:
        True is a proof. False claims nothing; it is returned for every alpha that is not a power of two.
    """
    form, inner = format_of(format_name), accumulator_of(format_name)
    if math.frexp(alpha)[0] != 0.5 or largest_coordinate < 0:
        return False
    squares = dimensions * largest_coordinate**2
    # 2 L needs no check of its own. It exceeds n L^2 only for n = L = 1, and 2 fits every significand.
    return (
        squares <= 1 << form.precision
        # Every partial sum is then an integer times a power of two that the accumulator holds, whatever the order.
        and 3 * squares <= 1 << inner.precision
        and form.smallest_normal <= alpha <= form.largest / max(1, 2 * largest_coordinate)
        and alpha <= inner.largest / max(1, 3 * squares)
    )


def absolute_score_error(alpha: float, largest_coordinate: float, dimensions: int, format_name: str) -> Claimed:
    """Upper bound on |computed score - score| for any alpha of the format and any real centre with |c_i| <= L.

    The two features of each of the n + 1 products pass at most four roundings together: c, times alpha, and their
    casts, or |k|^2. In tf32 and bf32 they pass two truncations, which count twice, and two much smaller roundings. Then
    comes a dot product of n + 1 terms, whose absolute values add up to at most 3 n alpha L^2.

    Returns:
        The bound, rounded up. Two scores differ by at most twice this from their true difference.
    Holds without overflow or underflow. Source: Higham 2002, Lemma 3.1 and Eq. 3.5.
    """
    with ctx.workprec(BALL_PRECISION):
        # Gamma of 5, not of 4: the fifth covers the two float32 roundings beside the truncations of tf32 and bf32.
        features = 1 + arb(gamma(5, format_of(format_name).unit_roundoff))
        # The error is relative to the sum of absolute values, not to the score: the terms cancel near the target.
        relative = features * (1 + arb(gamma(dimensions + 1, accumulator_of(format_name).unit_roundoff))) - 1
        error = up(3 * dimensions * relative * arb(alpha) * arb(largest_coordinate) ** 2)
        return Claimed(error, {WITHOUT_THEOREM})
