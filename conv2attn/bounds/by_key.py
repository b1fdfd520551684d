"""The error of a soft quadratic head, counted key by key: a far key has no weight, so the grid does not matter."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import final

from flint import arb, ctx

from conv2attn.bounds.arithmetic import Arithmetic
from conv2attn.bounds.directed import BALL_PRECISION, up
from conv2attn.bounds.formats import accumulator_of, format_of, storage_of
from conv2attn.bounds.leak import leaked_mass_diagonal, positive_ball
from conv2attn.bounds.rounding import RoundingBound, gamma, operand_error
from conv2attn.bounds.softmax import CUT_BITS, weights_error
from conv2attn.errors import UsageError

LARGEST_KEYS = 1 << 22  # for these gamma is at most 1, even in float32 sums that truncate
MOST_GROWN = 2  # 1 + gamma of so many, whatever the grid
BLOCK = 32  # keys between two updates of the maximum in a fused kernel: no fewer in any that torch has
LEAST_ALPHA = 1e-5  # below this, one-sided series would take more than 5,000 terms
SERIES_BITS = 200
NEAREST, FARTHEST, CHOICES = 6.0, 42.0, 8  # alpha r^2 of the reaches r that are tried, and how many they are


@final
@dataclass(frozen=True)
class Head:
    """A quadratic head: scores `-alpha |key - centre|^2`, whose target is the key nearest to the centre.

    Args:
        alpha: the sharpness, in inverse squared pixels.
        shifts: how far the centre is from the nearest integer, along each axis; above 1/2 where nothing is known of
            the scores, so that the leak counts as 1.
        distance: an upper bound on the squared distance from the centre to the nearest key, over all queries.
        outside: whether some query has its target beyond the grid, and reads the nearest key instead.
        box: whether the keys are those of a box; else they are any integers of one axis, as in an enumeration.
    """

    alpha: float
    shifts: tuple[float, ...]
    distance: float = 0.0
    outside: bool = False
    box: bool = True


@lru_cache(maxsize=4096)
def soft_mixing_bound(
    head: Head, keys: tuple[int, ...], arithmetic: Arithmetic, score_error: float = 0.0
) -> RoundingBound:
    """Bound on |computed sum over keys of weight * x - the same in real arithmetic| for a head of any sharpness.

    `softmax_by_key`, then a dot product whose far keys cost only what they weigh; of one axis after the other where
    the arithmetic is so, each of them for tokens that reach further.

    Args:
        keys: sides of the box of keys; they matter only where they are short, or flushing may add up.
        score_error: of a fused kernel, the largest error of a score.
    Returns:
        A bound of `factor * max |x| + absolute`; infinite where nothing can be said.
    Raises:
        UsageError: there are more than 2^22 keys.
        AlphaError: alpha is not positive and finite.
    Source: proved as claim SOFT of proofs/ (SOFT_by_key, SOFT_moment, SOFT_mixing, SOFT_axes).
    """
    if math.prod(keys) > LARGEST_KEYS:
        raise UsageError("C2A001", f"the rounding of {math.prod(keys)} soft weights is not bounded")
    positive_ball(head.alpha)
    with ctx.workprec(BALL_PRECISION):
        if max(head.shifts) > 0.5:
            return any_mean_bound(math.prod(keys), arithmetic)
        if head.alpha < LEAST_ALPHA:
            return RoundingBound(math.inf, math.inf)
        if not arithmetic.by_axis or not head.box:
            return mean_bound(head, math.prod(keys), arithmetic, score_error)
        total = RoundingBound(0.0, 0.0)
        for shift, side in zip(head.shifts, keys, strict=True):
            alone = Head(head.alpha, (shift,), head.distance, head.outside)
            total = total.then(mean_bound(alone, side, arithmetic, score_error))
        return total


def any_mean_bound(keys: int, arithmetic: Arithmetic) -> RoundingBound:
    """Bound on |computed mean| - max |x| for any scores; beside a leak of 1 it bounds what the mean is from any x."""
    inner, storage = accumulator_of(arithmetic.format), storage_of(arithmetic.format)
    u, cast, tiny = arb(inner.unit_roundoff), 1 + arb(storage.unit_roundoff), arb(inner.smallest_normal)
    coarse = arb(operand_error(arithmetic.format)) + 2 * arb(gamma(2 * keys, inner.unit_roundoff))
    weights = (1 + u) ** 2 * cast / (1 - arb(gamma(keys, inner.unit_roundoff)))
    lost = (2 * keys + 1) * tiny + arb(storage.smallest_subnormal)
    return RoundingBound(up(weights * (1 + coarse) * cast - 1 + keys * 8 * lost), up(8 * lost))


def mean_bound(head: Head, keys: int, arithmetic: Arithmetic, score_error: float) -> RoundingBound:
    """`soft_mixing_bound` of the softmax over all keys at once, for the number of near keys that serves best."""
    alpha = positive_ball(head.alpha)
    least, most = (math.sqrt(size / head.alpha) for size in (NEAREST, FARTHEST))
    first, last = int(least), math.ceil(most) + 2
    reaches = range(first, last, max(1, (last - first) // CHOICES))
    return min((near_and_far(head, alpha, keys, r, arithmetic, score_error) for r in reaches), key=lambda b: b.factor)


def near_and_far(
    head: Head, alpha: arb, keys: int, reach: int, arithmetic: Arithmetic, score_error: float
) -> RoundingBound:
    """`mean_bound` that counts the roundings of the keys within `reach` of the nearest, and of the others the mass."""
    near = min(keys, (2 * reach + 1) ** len(head.shifts))
    off, far = softmax_by_key(head, alpha, keys, near, reach, arithmetic, score_error)
    form, inner, storage = (which(arithmetic.format) for which in (format_of, accumulator_of, storage_of))
    u, cast, tiny = arb(inner.unit_roundoff), arb(storage.unit_roundoff), arb(inner.smallest_normal)
    step, cut = u * (2 if arithmetic.truncates or form.cuts else 1), 1 + arb(operand_error(arithmetic.format))
    once, apart = (1 + cast) if storage != inner else arb(1), 2
    few = step
    if arithmetic.stores_means and storage != inner:
        few, once, apart = (1 + step) * (1 + cast) - 1, arb(1), 4
    if not near * few < 1:
        return RoundingBound(math.inf, math.inf)
    grown, all_grown = cut / (1 - near * few) * once, cut * MOST_GROWN * once
    lost = 2 * keys * tiny + tiny + near * arb(storage.smallest_subnormal)
    factor = off + far + (grown - 1) * (1 + off) + grown * apart * all_grown * far
    return RoundingBound(up(factor), up(grown * apart * all_grown * lost))


def softmax_by_key(
    head: Head, alpha: arb, keys: int, near: int, reach: int, arithmetic: Arithmetic, score_error: float
) -> tuple[arb, arb]:
    """The sum over keys of |computed weight - softmax weight|, and what the far keys weigh as computed.

    For scores off by c |s| + c0 and exponentials off by a fraction d but at the nearest key, exponentials are off by
    D = ((1 + d)(e^c0 M - 1) + d leak)(1 + far') + near eta of their sum over the near keys, with M the mean of
    e^(c |s|), which a grid does not change, and far' what the exponentials of the other keys are in all.
    """
    inner = accumulator_of(arithmetic.format)
    u, tiny = arb(inner.unit_roundoff), arb(inner.smallest_normal)
    relative, constant, exact = score_errors(head, arithmetic, score_error)
    d = 2 * arb(arithmetic.exp_ulps) * u
    if arithmetic.fused:
        d = (1 + d) * ((1 + d) * (1 + u)) ** math.ceil(keys / BLOCK) - 1
    depth = -tiny.log()
    cut = tiny * 2**CUT_BITS * (relative * depth + constant + 4 * u * (depth + alpha * head.distance)).exp()
    eta = (arb(arithmetic.exp_ulps) + 1) * tiny + cut
    if exact:
        eta += (1 + d) * (-alpha * 2**inner.precision * (1 - relative)).exp()
    mean = arb(1)
    for shift in head.shifts:
        mean *= moment(head, alpha, relative, shift)
    leak = arb(leaked_mass_diagonal([head.alpha] * len(head.shifts), head.shifts))
    beyond = far_mass(alpha, head.shifts, reach)
    off = ((1 + d) * (constant.exp() * mean - 1) + d * leak) * (1 + beyond) + near * eta
    far = (1 + d) * constant.exp() * far_mass(alpha * (1 - relative), head.shifts, reach) + keys * eta
    lost = (1 + arb(gamma(near, inner.unit_roundoff))) * 2 * MOST_GROWN * (far + 2 * keys * tiny)
    stored = 2 * far + keys * tiny
    return weights_error(near, arithmetic.format, off, lost) + stored + 2 * beyond, stored


def score_errors(head: Head, arithmetic: Arithmetic, score_error: float) -> tuple[arb, arb, bool]:
    """c, c0 and whether distances are exact: a score, less the largest, is off by at most c |s| + c0.

    A distance between integers is exact while its square fits the significand, so one product and the sum over the axes
    round, and a cast of alpha; else the difference and its square round as well, and what the largest is off by is
    off everywhere. Scores of features are off by `score_error` each.
    """
    inner = accumulator_of(arithmetic.format)
    u, axes, tiny = arb(inner.unit_roundoff), len(head.shifts), arb(inner.smallest_normal)
    if arithmetic.fused:
        return u, (1 + u) * 2 * arb(score_error) + tiny, False
    added = 1 + arb(gamma(axes, inner.unit_roundoff))
    if max(head.shifts) == 0 and head.distance == 0:
        return (1 + u) ** 2 * added - 1, arb(0), True
    relative = (1 + u) ** 5 * added - 1
    largest = positive_ball(head.alpha) * arb(head.distance)
    lost = 4 * axes * (1 + positive_ball(head.alpha)) * tiny
    return (1 + u) * (1 + relative) - 1, (1 + u) * 2 * (relative * largest + lost) + tiny, False


def moment(head: Head, alpha: arb, relative: arb, shift: float) -> arb:
    """The largest mean of e^(c |s|) along one axis, over all boxes: rho of claim SOFT, at most.

    With T the sum of e^s over one side of the nearest key and T' that of e^((1 - c) s), (1/2 + T') / (1/2 + T) bounds
    it on each side. For a centre beyond the grid, at any distance, scores fall faster and e^s (e^(c |s|) - 1) has its
    maximum at |s| = -log(1 - c) / c; of keys that are no box, the nearest alone counts in the denominator.
    """
    if not relative < 1:
        return arb(math.inf)
    smaller = alpha * (1 - relative)
    each = [arb(1)]
    for side in {shift, -shift} if head.box else set():
        each.append((one_side(smaller, side) + arb(0.5)) / (one_side(alpha, side) + arb(0.5)))
    if not head.box:
        each.append(1 + 2 * (one_side(smaller, shift) - one_side(alpha, shift)))
    if head.outside:
        top = -(1 - relative).log() / relative
        last = series_terms(alpha, 0.0)
        sizes = [alpha * (n * n) for n in range(1, last)]
        gained = sum(((-size.max(top)).exp() * ((relative * size.max(top)).exp() - 1)
                      for size in sizes), arb(0))  # fmt: skip
        each.append(1 + gained + one_side_tail(smaller, 0.0, last))
    return reduce(arb.max, each)


def far_mass(alpha: arb, shifts: Sequence[float], reach: int) -> arb:
    """The sum of e^s over the keys that are more than `reach` from the nearest along some axis, at most."""
    totals, rests = [], []
    for shift in shifts:
        totals.append(1 + one_side(alpha, shift) + one_side(alpha, -shift))
        rests.append(sum((one_side(alpha, side, reach + 1) for side in (shift, -shift)), arb(0)))
    return sum(
        (rest * math.prod((t for other, t in enumerate(totals) if other != axis), start=arb(1))
         for axis, rest in enumerate(rests)), arb(0)
    )  # fmt: skip


def one_side(alpha: arb, shift: float, first: int = 1) -> arb:
    """A ball around the sum over n >= first of exp(-alpha (n^2 - 2 n shift)), for a shift within +-1/2."""
    last = max(first, series_terms(alpha, shift))
    terms = ((-alpha * (n * (n - 2 * arb(shift)))).exp() for n in range(first, last))
    return sum(terms, arb(0)) + arb(0).union(one_side_tail(alpha, shift, last))


def one_side_tail(alpha: arb, shift: float, first: int) -> arb:
    """At least the sum over n >= first of exp(-alpha (n^2 - 2 n shift)): a geometric series."""
    return (-alpha * (first * (first - 2 * arb(shift)))).exp() / (1 - (-alpha * first).exp())


def series_terms(alpha: arb, shift: float) -> int:
    """How many terms of `one_side` are above 2^-200."""
    return 3 + math.isqrt(int(up(SERIES_BITS / alpha)))
