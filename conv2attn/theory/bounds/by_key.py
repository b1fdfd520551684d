"""Soft quadratic heads: their leak and the rounding of their means, by the program that claim ROW proves.

The error of a softmax is counted key by key. A far key has almost no weight, so the bound does not grow with the grid.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import final

from flint import arb, ctx

from conv2attn.theory.bounds.claimed import BALL_PRECISION, WITHOUT_THEOREM, Claimed, claims_of, down, positive_ball, up
from conv2attn.theory.bounds.formats import accumulator_of, format_of, storage_of
from conv2attn.theory.bounds.hard import computed_leak
from conv2attn.theory.bounds.leak import leaked_mass_diagonal
from conv2attn.theory.bounds.premises import (
    Arithmetic,
    ArithmeticPremises,
    CentredPremises,
    HeadPremises,
    claims_under,
    program_claim,
)
from conv2attn.theory.bounds.row import ONE, Setting, SoftHeads, as_integer
from conv2attn.theory.bounds.sum_rounding import RoundingBound, gamma

CUT_BITS = 24  # only weights below the smallest normal number times 2^24 are cut: see `basis.cut_softmax`
BLOCK = 32  # keys between two updates of the maximum in a fused kernel: torch has no kernel with fewer
LEAST_ALPHA = 1e-5  # below this, thousands of terms would be added up
NEAREST, FARTHEST, CHOICES = 4.0, 42.0, 16  # alpha r^2 of the first and last reach r to try; number of reaches
CENTRED_ROUNDINGS = 5  # subtract the centre (counts twice, as it is squared), square, cast alpha, multiply
NOTHING = RoundingBound(math.inf, math.inf)


@final
@dataclass(frozen=True)
class Head:
    """A quadratic head: scores `-alpha |key - centre|^2`, whose target is the key nearest to the centre.

    Args:
        alpha: the sharpness, in inverse squared pixels.
        shifts: distance of the centre from the nearest integer, along each axis of the scores. A value above 1/2 means
            that the scores are unknown; the leak then counts as 1.
        distance: an upper bound on the squared distance from the centre to the nearest key, over queries and grids.
        outside: whether some query has its target beyond the grid, so that it reads the nearest key instead.
        box: whether the keys are the pixels of a box. Otherwise they are any integers on one axis, as in
            `EnumeratedSoftmax`.
    """

    alpha: float
    shifts: tuple[float, ...]
    distance: float = 0.0
    outside: bool = False
    box: bool = True

    @property
    def axes(self) -> int:
        """Number of axes over which the scores are a sum."""
        return len(self.shifts)

    @property
    def number_claims(self) -> frozenset[str]:
        """The claims that justify one axis for the scores of an `EnumeratedSoftmax`; empty for a box."""
        return frozenset() if self.box else frozenset({"D2", "T1"})

    @property
    def premises(self) -> HeadPremises:
        """The premises of ROW on a head."""
        return HeadPremises(self.box, not self.outside, max(self.shifts) < 0.5)

    @property
    def centred(self) -> CentredPremises:
        """The premises of SOFT on a head."""
        return CentredPremises(not self.outside, not any(self.shifts) and self.distance == 0)

    def sharpness(self, format_name: str) -> float:
        """A sharpness alpha' for which a head centred on a pixel leaks, as computed, no less than this one.

        Let g be the vector from the centre to the nearest key, with |g|^2 <= G = `distance`. Let f_i = |`shifts[i]`| be
        the distance of the centre from an integer on axis i, and f the largest f_i. Let u be the unit roundoff. A rival
        n pixels from the nearest key scores -alpha (|g|^2 + k) with k >= sum of n_i^2 - 2 |n_i| f_i >= (1 - 2 f) |n|^2.
        On the grid this is the expansion of |n - f|^2. Beyond its border all rivals are on the far side, where k >=
        |n|^2. The relative error of a computed score is at most c = gamma_m, with m = 4 + axes, and one more for a cast
        of alpha. So the computed gap to a rival is at least alpha (k - c (2 G + k)) (1 - u), which is at least alpha'
        |n|^2 with

            alpha' = alpha (1 - u) ((1 - 2 f) (1 - c) - 2 c G).

        If the centre is on a pixel and every target is a key, alpha itself is returned: `computed_leak` includes the
        errors of such scores.

        Args:
            format_name: format of the attention weights; scores are computed in its accumulator.
        Returns:
            alpha', rounded down; 0 if no positive one follows, for example halfway between two pixels.
        Raises:
            AlphaError: `alpha` is not positive and finite.
        Source: Higham 2002, Lemma 3.1, for gamma; Cordonnier et al. 2020, Eq. 9, for the score.
        """
        positive_ball(self.alpha)
        # The axis with the largest shift decides: 1 - 2 f is least there.
        off = max(map(abs, self.shifts))
        if not (off <= 0.5 and self.distance >= 0):
            return 0.0
        if off == 0 and self.distance == 0:
            return self.alpha
        inner = accumulator_of(format_name)
        u = inner.unit_roundoff
        # The nearest key's own score may overflow, and infinity minus infinity is not a number.
        if not self.alpha * self.distance * 2 <= inner.largest:
            return 0.0
        with ctx.workprec(BALL_PRECISION):
            # Higham's gamma in balls: as a float it is rounded up, which can cost the last place of the result.
            rounded = arb(CENTRED_ROUNDINGS + self.axes) * arb(u)
            relative = rounded / (1 - rounded)
            # The gap loses the fraction c of itself, and twice c of the nearest key's own score: that score is part of
            # both scores whose difference is the gap, and both are rounded.
            kept = (1 - 2 * arb(off)) * (1 - relative) - 2 * relative * arb(self.distance)
            return max(0.0, down(positive_ball(self.alpha) * (1 - arb(u)) * kept))

    def leak(self) -> Claimed:
        """Upper bound on the mass off the target, in real arithmetic."""
        # `leaked_mass_diagonal` takes centres modulo 1, so it must not get a shift above 1/2, which means "unknown".
        if max(self.shifts) > 0.5:
            return Claimed(1.0)
        leak = leaked_mass_diagonal([self.alpha] * self.axes, self.shifts)
        return Claimed(leak, claims_of(leak) | self.number_claims)

    def computed_leak(self, format_name: str, exp_ulps: float) -> Claimed:
        """Upper bound on the computed mass off the target; exactly 0 if every other weight is 0.

        If no bound below 1 follows, it is 1 and names no theorem.
        """
        sharpness = self.sharpness(format_name)
        leak = computed_leak(sharpness, self.axes, format_name, exp_ulps) if sharpness > 0 else math.inf
        if not leak < 1:
            return Claimed(1.0)
        return Claimed(leak, claims_under([self.centred], *sorted(claims_of(leak), reverse=True)) | self.number_claims)


def soft_reading(
    head: Head, keys: tuple[int, ...], arithmetic: Arithmetic, score_error: float
) -> tuple[Claimed, RoundingBound]:
    """The leak of a head of any sharpness, and its `soft_mixing_bound`. Both are at least what claim ROW proves.

    If ROW gives no useful bound, the leak counts as 1, and the rounding is that of a mean with any weights.
    """
    mixing = soft_mixing_bound(head, keys, arithmetic, score_error)
    if not mixing.factor <= 1 or max(head.shifts) > 0.5:
        return Claimed(1.0), any_mean_bound(math.prod(keys), arithmetic)
    # ROW computes the leak in integers that round up at every step, so it may slightly exceed `head.leak()`. `recheck`
    # refutes a certificate whose bound is below the proved one; the larger of the two leaks is never below it.
    proved = heads_of_row(head, keys, arithmetic, score_error)
    if proved is None or any(head.shifts):
        return head.leak(), mixing
    leak = max(head.leak(), up(Fraction(proved.leak(head.axes), ONE)))
    claims = claims_under([head.premises, ArithmeticPremises.of(arithmetic)], program_claim(arithmetic))
    return Claimed(leak, claims_of(head.leak()) | claims), mixing


def soft_mixing_bound(head: Head, keys: tuple[int, ...], arithmetic: Arithmetic, score_error: float) -> RoundingBound:
    """Bound on |computed - exact| of `sum over keys of weight * x`, for a head of any sharpness.

    It is the bound of claim ROW for the reach at which it is least; the reach says how many keys count as near. If the
    mean is taken along one axis after the other, the errors of the axes add up, and each axis reads tokens that the
    errors before it have enlarged. A centre at a distance f from a key counts as a centre on that key with the
    sharpness `(1 - 2 f) alpha`: its scores fall at least that fast.

    Args:
        keys: sides of the box of keys. They affect losses by underflow, fused kernels and truncated sums.
        score_error: the largest error of a score in a fused kernel; other kernels ignore it.
    Returns:
        A bound of `factor * max |x| + absolute`; infinite if no bound follows.
    Raises:
        AlphaError: alpha is not positive and finite (C2A130).
    Source: proved as claim ROW of proofs/, except if partial sums are stored, whose roundings count twice.
    """
    positive_ball(head.alpha)
    heads = heads_of_row(head, keys, arithmetic, score_error)
    if heads is None:
        return NOTHING
    claims = claims_under([head.premises, ArithmeticPremises.of(arithmetic)], program_claim(arithmetic), "SOFT")
    # The error is affine in the range of the tokens. Its value at range 1 includes the absolute part, a tiny excess.
    return RoundingBound(up(Fraction(heads.mixing(ONE), ONE)), up(Fraction(heads.mixing(0), ONE)), claims)


def any_mean_bound(keys: int, arithmetic: Arithmetic) -> RoundingBound:
    """Bound on |computed mean| - max |x| for any scores.

    With a leak of 1 it bounds |computed mean - x| for any token x.

    Raises:
        UsageError: gamma is not defined for so many keys (C2A001).
    """
    inner, storage = accumulator_of(arithmetic.format), storage_of(arithmetic.format)
    with ctx.workprec(BALL_PRECISION):
        u, cast, tiny = arb(inner.unit_roundoff), 1 + arb(storage.unit_roundoff), arb(inner.smallest_normal)
        # Only the sum of the weights is known, so this counts generously: four roundings per key, each counted twice
        # for truncation. With a leak of 1, which already counts 2 max |x|, a finer bound would make no difference.
        summed = storage.unit_roundoff if arithmetic.stores_means else inner.unit_roundoff
        cut = 2 * arb(format_of(arithmetic.format).unit_roundoff) if format_of(arithmetic.format).cuts else 0
        coarse = (1 + cut) ** 2 - 1 + 2 * arb(gamma(4 * keys, summed))
        weights = (1 + u) ** 2 * cast / (1 - arb(gamma(keys, inner.unit_roundoff)))
        lost = (2 * keys + 1) * tiny + keys * arb(storage.smallest_subnormal)
        return RoundingBound(
            up(weights * (1 + coarse) * cast - 1 + keys * 8 * lost), up(8 * lost), frozenset({WITHOUT_THEOREM})
        )


@lru_cache(maxsize=4096)
def heads_of_row(head: Head, keys: tuple[int, ...], arithmetic: Arithmetic, score_error: float) -> SoftHeads | None:
    """The input of claim ROW's program for a head, at the reach where its bound is least; None if no bound follows."""
    # A rival n places from the nearest key scores less by at least (1 - 2 f) alpha n^2, as in `Head.sharpness`.
    alpha = Fraction(head.alpha) * (1 - 2 * Fraction(max(head.shifts)))
    if not alpha >= LEAST_ALPHA:
        return None
    # Over a box the softmax is a product of one softmax per axis. These sum fewer keys, and their errors add up.
    apart = arithmetic.by_axis and head.box
    longest, together = (max(keys), 1) if apart else (math.prod(keys), head.axes)
    score, score_lost, ulps, exp_lost, stored = errors(head, alpha, longest, together, arithmetic, score_error)
    numbers = longest, score, score_lost, ulps, exp_lost, stored
    # A longer reach counts more roundings, a shorter one leaves more weight to the far keys. The best reach has no
    # closed formula, so some reaches are tried.
    tried = reaches(alpha, arithmetic, max(keys) - 1 if head.box else None, score, score_lost, ulps)
    candidates = (
        SoftHeads(
            head.axes, apart, int(alpha * ONE), reach, *numbers, softmax, mean, 4 if arithmetic.stores_means else 2
        )
        for softmax, mean, reach in settings(tried, longest, together, arithmetic)
    )
    # Every reach gives a valid bound, so the least of these bounds is valid too.
    return min((heads for heads in candidates if heads.fits), key=lambda heads: heads.mixing(ONE), default=None)


def reaches(
    alpha: Fraction, arithmetic: Arithmetic, farthest: int | None, score: int, score_lost: int, ulps: int
) -> Sequence[int]:
    """The reaches to try. If sums truncate, it is the only reach beyond which every weight is certainly 0.

    With rounding to nearest, a far key moves a sum by a small multiple of its weight, so any reach gives a bound. But a
    far key may move a truncated sum by a unit in the last place, however small its weight is. Then all keys with a
    weight above 0 must be near. With c = `score`, c0 = `score_lost` and d = `ulps`, a weight m places away is at most
    (1 + d) e^(c0 - (1 - c) alpha m^2). It is 0 below half of the smallest number of the storage. If the weight is then
    cast, that limit is halved once more, for the error of exp. `farthest` is the largest m in the box, or None if the
    keys are not those of a box.
    """
    inner, storage = accumulator_of(arithmetic.format), storage_of(arithmetic.format)
    first, last = int(math.sqrt(NEAREST / alpha)), math.ceil(math.sqrt(FARTHEST / alpha)) + 2
    # With rounding to nearest every reach is valid; with truncation only the reach computed below.
    if not (arithmetic.truncates or format_of(arithmetic.format).cuts):
        return range(first, last, max(1, (last - first) // CHOICES))
    with ctx.workprec(BALL_PRECISION):
        smallest = arb(storage.smallest_subnormal) / (2 if storage == inner else 4)
        depth = arb(score_lost) / ONE + ((1 + arb(ulps) / ONE) / smallest).log()
        falls = arb(alpha.numerator) / alpha.denominator * (1 - arb(score) / ONE)
        if not falls > 0:
            return ()
        reach = math.isqrt(math.floor(up(depth / falls)))
    return (max(first, reach if farthest is None else min(reach, farthest)),)


def settings(
    reaches: Sequence[int], keys: int, together: int, arithmetic: Arithmetic
) -> Iterator[tuple[Setting, Setting, int]]:
    """For each reach: the arithmetic of one softmax over `together` axes, that of its mean, and the reach."""
    form, inner, storage = (which(arithmetic.format) for which in (format_of, accumulator_of, storage_of))
    u, cast, tiny = map(Fraction, (inner.unit_roundoff, storage.unit_roundoff, inner.smallest_normal))
    # Underflow, gradual or flushed, loses less than the smallest normal number, so these losses cover both.
    losses = tiny, tiny, tiny + Fraction(storage.smallest_subnormal)
    roundoff, cut, casts = u * (2 if arithmetic.truncates or form.cuts else 1), Fraction(0), int(storage != inner)
    if form.cuts:
        cut = 2 * Fraction(form.unit_roundoff)
    kept, stores = cast * casts, arithmetic.stores_means and casts
    for reach in reaches:
        # ROW requires that the mean has at least as many terms as there are near keys, even if the box has fewer keys.
        terms = max(keys, (2 * reach + 1) ** together)
        softmax = Setting.counting(u, 0, cast, losses, 0, 0, 0, 0)
        mean = Setting.counting(roundoff, cut, kept, losses, terms, terms, casts, casts)
        # A partial sum that is stored is rounded twice. This counts as one rounding with a larger roundoff, without a
        # cast.
        if stores:
            mean = Setting.counting((1 + roundoff) * (1 + cast) - 1, cut, 0, losses, terms, terms, 0, terms)
        yield softmax, mean, reach


def errors(
    head: Head, alpha: Fraction, keys: int, together: int, arithmetic: Arithmetic, score_error: float
) -> tuple[int, int, int, int, int]:
    """`score, score_lost, ulps, exp_lost, weight_loss` of `SoftHeads`, as integers over 2^256."""
    inner = accumulator_of(arithmetic.format)
    with ctx.workprec(BALL_PRECISION):
        u, tiny = arb(inner.unit_roundoff), arb(inner.smallest_normal)
        relative, constant, exact = score_errors(head, together, arithmetic, score_error)
        d = 2 * arb(arithmetic.exp_ulps) * u
        # A fused kernel rescales its sums whenever a block of keys raises the maximum: one exponential and one product.
        if arithmetic.fused:
            d = (1 + d) * ((1 + d) * (1 + u)) ** math.ceil(keys / BLOCK) - 1
        # `cut_softmax` sets exponentials below a limit to 0. An error of a score may move a larger exponential below
        # it.
        depth, sharp = -tiny.log(), positive_ball(head.alpha)
        cut = tiny * 2**CUT_BITS * (relative * depth + constant + 4 * u * (depth + sharp * head.distance)).exp()
        lost = (arb(arithmetic.exp_ulps) + 1) * tiny + cut
        # From a centre on a pixel, squared distances are exact while they fit the significand. Keys that are farther
        # away have almost no weight, which is added here.
        if exact:
            lost += (1 + d) * (-arb(alpha.numerator) / alpha.denominator * 2**inner.precision * (1 - relative)).exp()
        # Infinity has no integer, so an error counts as at most 1e30; `SoftHeads.fits` refuses such an error too.
        score, score_lost, ulps, exp_lost, stored = (
            as_integer(min(up(error), 1e30)) for error in (relative, constant, d, lost, tiny)
        )
        return score, score_lost, ulps, exp_lost, stored


def score_errors(head: Head, axes: int, arithmetic: Arithmetic, score_error: float) -> tuple[arb, arb, bool]:
    """c, c0, and whether distances are exact. A score minus the largest one, s, errs by at most c |s| + c0.

    A distance between integers is exact while its square fits the significand. Then only the product, the sum over the
    axes and a cast of alpha round. Otherwise the difference and its square round too, and the error of the largest
    score is added to every score. A score that is an inner product of features has the error `score_error`.
    """
    inner = accumulator_of(arithmetic.format)
    u, tiny = arb(inner.unit_roundoff), arb(inner.smallest_normal)
    # Both scores have the error of rounded features, so their difference has twice that error; it also rounds once.
    if arithmetic.fused:
        return u, (1 + u) * 2 * arb(score_error) + tiny, False
    added = 1 + arb(gamma(axes, inner.unit_roundoff))
    # The largest score is exactly 0 here, so subtracting it changes nothing.
    if max(head.shifts) == 0 and head.distance == 0:
        return (1 + u) ** 2 * added - 1, added * axes * tiny, True
    relative, sharp = (1 + u) ** 5 * added - 1, positive_ball(head.alpha)
    lost = 4 * axes * (1 + sharp) * tiny
    return (1 + u) * (1 + relative) - 1, (1 + u) * 2 * (relative * sharp * head.distance + lost) + tiny, False
