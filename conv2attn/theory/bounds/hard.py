"""Hard heads in floating point: the sharpness from which they are one-hot, and their leak below that sharpness."""

import math
from functools import lru_cache

from flint import arb, ctx

from conv2attn.errors import AlphaError
from conv2attn.theory.bounds.claimed import BALL_PRECISION, WITHOUT_THEOREM, Claimed, positive_ball, up
from conv2attn.theory.bounds.formats import Format, accumulator_of, format_of, storage_of
from conv2attn.theory.bounds.leak import lattice_rivals
from conv2attn.theory.bounds.sum_rounding import RoundingBound, convolution_bound, gamma

SMALLEST_AUTO_ALPHA = 46.0  # the paper's; it raises only float16's alpha, as a fused kernel may keep weights in float32


def one_hot_threshold(format_name: str, flush_to_zero: bool = False) -> float:
    """From this alpha on, every off-target weight of a head with an integer offset is exactly 0 in the format.

    An off-target score is at most -alpha, since alpha times an integer >= 1 rounds to no less than alpha. exp(-alpha)
    rounds to 0 when it is at most half of the smallest subnormal 2^e, that is from alpha = (1 - e) ln 2 on. Under
    flush-to-zero it becomes 0 already below the smallest normal number of the format in which softmax is computed. The
    sum is at least 1, so dividing by it keeps a 0, and so does the cast to storage.

    Args:
        format_name: format of the attention weights.
        flush_to_zero: whether subnormal results of the softmax are flushed; a cast to float16 is not.
    Returns:
        The threshold, rounded up to a number of the format in which the weights are stored.
    Holds when the target is a key, alpha is a number of the format, and exp underflows as rounding to nearest would.
    How exp underflows is a property of a device and must be measured on it. When the target is not a key, alpha must be
    a power of two.
    Source: IEEE 754-2019, 4.3.1 and 7.5; Cordonnier et al. 2020, remark after Lemma 2 (its 46 is too
        small: E1 of docs/errata.md).
    """
    storage, inner = storage_of(format_name), accumulator_of(format_name)
    # A number rounds to 0 if it is at most half of the smallest subnormal (ties go to even): one more halving.
    halvings = 1 - storage.smallest_subnormal_exponent
    if flush_to_zero:
        halvings = min(halvings, -inner.smallest_normal_exponent)
    with ctx.workprec(BALL_PRECISION):
        return storage.round_up(up(halvings * arb.const_log2()))


def auto_alpha(format_name: str) -> float:
    """The least power of two that is at least 46 and at least `one_hot_threshold`.

    It is a power of two, because alpha times an integer is then exact. It is 1024 for float64, 128 for float32 and
    bfloat16, and 64 for float16. Under flush-to-zero a smaller alpha would do.
    """
    # Doubling is exact, while a logarithm would be rounded.
    needed = max(SMALLEST_AUTO_ALPHA, one_hot_threshold(format_name))
    alpha = 1.0
    while alpha < needed:
        alpha *= 2
    return alpha


def computed_leak(alpha: float, dimensions: int, format_name: str, exp_ulps: float) -> Claimed:
    """Upper bound on the sum of the off-target weights as computed, for a head whose target is a key.

    Scores `-alpha |d|^2` come from integers, so their relative error is at most 3 u. The error of exp is `exp_ulps`.
    The sum is at least 1, the target's own exponential, so the division does not enlarge a weight. The cast to storage
    adds u. Below the normal numbers, each weight that does not underflow may gain `exp_ulps` units of the softmax's
    format and half a unit of the storage's.

    Returns:
        The bound, rounded up; exactly 0 from `one_hot_threshold` on. It may exceed 1 if the head is soft.
    Raises:
        AlphaError: `alpha` is not positive and finite.
    Source: proved as claim SOFT of proofs/.
    """
    with ctx.workprec(BALL_PRECISION):
        # A mass of exactly 0 rests on underflow, which is a separate claim, A46.
        mass = up(_stored_off_target(alpha, dimensions, format_name, exp_ulps)[0])
        return Claimed(mass, {"SOFT"} if mass else {"SOFT", "A46"})


@lru_cache(maxsize=256)
def target_rounds_to_one_threshold(format_name: str, dimensions: int, exp_ulps: float) -> float:
    """From this alpha on, the target's computed weight is exactly 1, on every grid and in any order of summation.

    Either of two conditions is enough. First, the other exponentials sum to at most u; adding them up enlarges them by
    at most a factor 1 + gamma. Second, the quotient, whose relative error is u, is so close to 1 that it is stored as
    1.

    Returns:
        The threshold, rounded up to a number of the format in which the weights are stored. In two dimensions it is
        close to 55, 26, 11 and 14 times ln 2 for float64, float32, bfloat16 and float16.
    Holds when the target is a key and the error of exp is at most `exp_ulps` units in the last place.
    Source: proved as claim SOFT of proofs/.
    """
    # The condition gets easier as alpha grows, so doubling brackets the threshold whatever the format.
    low, high = 1.0, 2.0
    with ctx.workprec(BALL_PRECISION):
        while not _target_is_one(high, dimensions, format_name, exp_ulps):
            low, high = high, 2 * high
        # Bisection ends at or above the threshold, since `high` always satisfies the condition.
        while high - low > high * 2.0**-50:
            middle = (low + high) / 2
            low, high = (low, middle) if _target_is_one(middle, dimensions, format_name, exp_ulps) else (middle, high)
    return storage_of(format_name).round_up(high)


def hard_mixing_bound(
    alpha: float,
    dimensions: int,
    format_name: str,
    exp_ulps: float,
    *,
    stores: bool = False,
) -> RoundingBound:
    """Bound on |computed sum over keys of weight * x - x_target|, where the target's weight is exactly 1.

    The target's own product is exact. If the other weights sum to m, their products move the sum by at most m |x|.
    Rounding the running sum errs by as much once more: the sum is a float itself, so adding b to it errs by at most
    |b|. A cast to storage doubles this, as x_target is a number of the storage. If the engine `stores` each partial
    sum, every sum is rounded twice, and each added product counts at most four times. In tf32 and bf32 operands are cut
    and sums may truncate, so the sum is bounded as that of a convolution. The number of keys does not matter, only how
    many weights are not 0.
    Holds with gradual underflow, and with flushing where no x is subnormal.

    Returns:
        A bound of `factor * max |x| + absolute`. It is zero from `one_hot_threshold` on, except in tf32 and bf32.
    Raises:
        AlphaError: `alpha` is not positive and finite, or below `target_rounds_to_one_threshold`.
    Source: proved as claim SOFT of proofs/; FLOAT for tf32 and bf32.
    """
    if not alpha >= target_rounds_to_one_threshold(format_name, dimensions, exp_ulps):
        raise AlphaError(
            "C2A130",
            f"alpha={alpha!r} does not make the target's weight exactly 1 in {format_name}",
            "Pass a larger alpha.",
        )
    inner, storage = accumulator_of(format_name), storage_of(format_name)
    cuts = format_of(format_name).cuts
    # One-hot weights copy one number. In tf32 and bf32 the operand is cut first, so the copy is not exact there.
    if alpha >= one_hot_threshold(format_name) and not cuts:
        return RoundingBound(0.0, 0.0, frozenset({"SOFT", "A46"}))
    claims = frozenset({"SOFT", WITHOUT_THEOREM} if stores and storage != inner else {"SOFT"})
    with ctx.workprec(BALL_PRECISION):
        # Only weights that are not 0 count, so the bound is the same on grids of every size.
        mass, others = _stored_off_target(alpha, dimensions, format_name, exp_ulps)
        rounding = arb(convolution_bound(others + 1, format_name, bias=False).factor)
        lost = (1 + rounding) * (2 * (others + 1) * arb(inner.smallest_normal))
        # Where partial sums are stored, each addition rounds twice, by `u` of the sum and by `u` of the storage.
        if stores and storage != inner:
            step = (1 + arb(inner.unit_roundoff)) * (1 + arb(storage.unit_roundoff)) - 1
            if not (others + 1) * step < 1:
                return RoundingBound(math.inf, math.inf)
            rounding = 1 / (1 - (others + 1) * step) - 1
            lost += (1 + rounding) * (others * arb(storage.smallest_subnormal))
        # The cast of a result below the normal numbers may err by a subnormal, however small the result is.
        if storage != inner:
            lost += (1 + rounding) * (arb(inner.smallest_normal) + storage.smallest_subnormal)
        # Cut operands and truncated sums change the target's own number as well, so `rounding` acts on 1 + mass.
        if cuts:
            return RoundingBound(up(mass + rounding * (1 + mass)), up(lost), claims | {WITHOUT_THEOREM})
        # Rounding a running sum errs by at most what was added to it, which counts once more; a cast doubles that.
        doubled = 2 if storage == inner else 4
        return RoundingBound(up(doubled * (1 + rounding) * mass), up(doubled * lost), claims)


def _target_is_one(alpha: float, dimensions: int, format_name: str, exp_ulps: float) -> bool:
    """Whether either condition of `target_rounds_to_one_threshold` proves that the target's weight is 1."""
    inner, storage = accumulator_of(format_name), storage_of(format_name)
    # The relative error of a score is at most 3 u, so a head with this smaller alpha leaks no less than the computed
    # head.
    lower, u = positive_ball(alpha) * (1 - 3 * arb(inner.unit_roundoff)), arb(inner.unit_roundoff)
    others = _lattice_points(lower, dimensions, inner, inner)
    if not (others + 1) * inner.unit_roundoff < 1:
        return False
    rest = (1 + 2 * exp_ulps * u) * lattice_rivals(lower, dimensions) + others * exp_ulps * arb(
        inner.smallest_subnormal
    )
    if (1 + arb(gamma(others, inner.unit_roundoff))) * rest <= u:
        return True
    # The weight may be below 1 before it is stored, but it is stored as 1 if no other number of the storage is nearer.
    # This condition serves only formats that are stored with fewer bits than they are computed with.
    total = (1 + arb(gamma(others + 1, inner.unit_roundoff))) * (1 + rest)
    return bool((1 - arb(storage.unit_roundoff) / 2) * total <= 1 - u)


def _stored_off_target(alpha: float, dimensions: int, format_name: str, exp_ulps: float) -> tuple[arb, int]:
    """Upper bounds on the sum of the computed off-target weights and on how many of them are not 0."""
    sharpness = positive_ball(alpha)
    # Without this case the bound below would be positive for every alpha: a series of exponentials is never 0.
    if alpha >= one_hot_threshold(format_name):
        return arb(0), 0
    inner, storage = accumulator_of(format_name), storage_of(format_name)
    lower, cast = sharpness * (1 - 3 * arb(inner.unit_roundoff)), 1 + arb(storage.unit_roundoff)
    others = _lattice_points(lower, dimensions, storage, inner)
    # A relative error says nothing below the normal numbers; there each weight may gain this much instead.
    gain = cast * exp_ulps * arb(inner.smallest_subnormal) + arb(storage.smallest_subnormal) / 2
    return cast * (1 + 2 * arb(exp_ulps) * inner.unit_roundoff) * lattice_rivals(
        lower, dimensions
    ) + others * gain, others


def _lattice_points(alpha: arb, dimensions: int, storage: Format, inner: Format) -> int:
    """An upper bound on the number of off-target keys whose weight does not underflow in the storage."""
    # A weight becomes 0 below half the smallest subnormal. Before a cast we halve once more, for the error of exp.
    underflow = arb(storage.smallest_subnormal) / (2 if storage == inner else 4)
    # exp(-alpha |d|^2) >= underflow bounds |d|. The keys in this ball have no closed count, but those in its box have.
    reach = math.isqrt(math.floor(up(-underflow.log() / alpha)))
    return (2 * reach + 1) ** dimensions - 1
