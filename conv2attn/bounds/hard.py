"""Heads that are almost one-hot, as computed: the weight and the values that leak in floating point."""

import math

from flint import arb, ctx

from conv2attn.bounds.alpha import one_hot_threshold, target_rounds_to_one_threshold
from conv2attn.bounds.directed import BALL_PRECISION, up
from conv2attn.bounds.formats import EXP_ULPS, Format, accumulator_of, storage_of
from conv2attn.bounds.leak import lattice_rivals, positive_ball
from conv2attn.bounds.rounding import RoundingBound, operand_error
from conv2attn.bounds.summation import summation_growth
from conv2attn.errors import AlphaError


def computed_leak(alpha: float, dimensions: int, format_name: str, exp_ulps: float = EXP_ULPS["softmax"]) -> float:
    """Upper bound on the sum of the off-target weights as computed, for a head whose target is a key.

    Scores `-alpha |d|^2` come from integers and are off by at most 3 u; exp by `exp_ulps`; the sum is at least the
    target's 1, so the division does not enlarge; the cast to storage adds u. Below the normal numbers each of the
    weights that does not underflow gains at most half of the smallest subnormal of the storage and `exp_ulps` of
    the softmax's.

    Returns:
        The bound, rounded up; exactly 0 from `one_hot_threshold` on. Above 1 where the head is soft.
    Raises:
        AlphaError: `alpha` is not positive and finite.
    """
    with ctx.workprec(BALL_PRECISION):
        return up(_computed_off_target(alpha, dimensions, format_name, exp_ulps)[0])


def hard_mixing_bound(
    alpha: float, dimensions: int, format_name: str, exp_ulps: float = EXP_ULPS["softmax"]
) -> RoundingBound:
    """Bound on |computed sum over keys of weight * x - x_target|, from where the target's weight is exactly 1.

    The target's own product is exact. The others, m |x| in all, cost at most their sum, enlarged by
    `summation_growth`, once for being added up and once for what the target's partial sum loses by rounding: it
    is a float itself, so adding b to it errs by at most |b|. A cast to storage doubles this, as x_target is a number
    of the storage. The number of keys does not matter. In tf32 and bf32 the operands are cut first. Holds with
    gradual underflow, and with flushing where no x is subnormal: a product and a sum lose less than the smallest
    normal number each.

    Returns:
        A bound of `factor * max |x| + absolute`; zero from `one_hot_threshold` on, but for tf32 and bf32.
    Raises:
        AlphaError: `alpha` is not positive and finite, or below `target_rounds_to_one_threshold`.
    """
    if not alpha >= target_rounds_to_one_threshold(format_name, dimensions, exp_ulps):
        raise AlphaError("C2A130", f"alpha={alpha!r} does not make the target's weight exactly 1 in {format_name}")
    inner, storage = accumulator_of(format_name), storage_of(format_name)
    with ctx.workprec(BALL_PRECISION):
        mass, count = _computed_off_target(alpha, dimensions, format_name, exp_ulps)
        growth = summation_growth(mass / storage.smallest_subnormal + 1, inner) * (2 if storage == inner else 4)
        operands = arb(operand_error(format_name))
        return RoundingBound(
            up(operands + (1 + operands) * growth * mass * (1 + arb(inner.unit_roundoff))),
            up(growth * count * arb(inner.smallest_normal)),
        )


def _computed_off_target(alpha: float, dimensions: int, format_name: str, exp_ulps: float) -> tuple[arb, int]:
    """Bounds on the sum of the computed off-target weights and on how many of them are not 0."""
    sharpness = positive_ball(alpha)
    if alpha >= one_hot_threshold(format_name):
        return arb(0), 0
    inner, storage = accumulator_of(format_name), storage_of(format_name)
    lower = sharpness * (1 - 3 * arb(inner.unit_roundoff))
    mass = lattice_rivals(lower, dimensions)
    mass *= (1 + 2 * arb(exp_ulps) * inner.unit_roundoff) * (1 + arb(storage.unit_roundoff))
    count = _lattice_points(lower, dimensions, storage, inner)
    return mass + count * (2 * exp_ulps * arb(inner.smallest_subnormal) + arb(storage.smallest_subnormal) / 2), count


def _lattice_points(alpha: arb, dimensions: int, storage: Format, inner: Format) -> int:
    """At least as many displacements other than 0 as have weights that do not underflow in the storage.

    A weight underflows from half of the smallest subnormal down; half of that again pays for exp's error before a cast.
    """
    underflow = arb(storage.smallest_subnormal) / (2 if storage == inner else 4)
    reach = math.isqrt(math.ceil(up(-underflow.log() / alpha)))
    return (2 * reach + 1) ** dimensions - 1
