"""Soft quadratic heads: what leaks, and the rounding of what they read, by the program that claim ROW proves.

The error of a softmax is counted key by key: a far key has no weight, so the grid does not matter.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import final

from flint import arb, ctx

from conv2attn.theory.bounds.arithmetic import Arithmetic
from conv2attn.theory.bounds.claimed import WITHOUT_THEOREM, Claimed, claims_of
from conv2attn.theory.bounds.directed import BALL_PRECISION, down, positive_ball, up
from conv2attn.theory.bounds.formats import accumulator_of, format_of, storage_of
from conv2attn.theory.bounds.hard import computed_leak
from conv2attn.theory.bounds.leak import leaked_mass_diagonal
from conv2attn.theory.bounds.premises import (
    ArithmeticPremises,
    CentredPremises,
    HeadPremises,
    claims_under,
    program_claim,
)
from conv2attn.theory.bounds.row import ONE, Setting, SoftHeads, as_integer
from conv2attn.theory.bounds.softmax_rounding import CUT_BITS
from conv2attn.theory.bounds.sum_rounding import RoundingBound, gamma

BLOCK = 32  # keys between two updates of the maximum in a fused kernel: no fewer in any that torch has
LEAST_ALPHA = 1e-5  # below this, thousands of terms would be added up
NEAREST, FARTHEST, CHOICES = 4.0, 42.0, 16  # alpha r^2 of the reaches r that are tried, and how many they are
CENTRED_ROUNDINGS = 5  # centre subtracted, squared (twice that one, and its own), alpha cast and multiplied by
NOTHING = RoundingBound(math.inf, math.inf)


@final
@dataclass(frozen=True)
class Head:
    """A quadratic head: scores `-alpha |key - centre|^2`, whose target is the key nearest to the centre.

    Args:
        alpha: the sharpness, in inverse squared pixels.
        shifts: how far the centre is from the nearest integer, along each axis of the scores; above 1/2 where nothing
            is known of the scores, so that the leak counts as 1.
        distance: an upper bound on the squared distance from the centre to the nearest key, over queries and grids.
        outside: whether some query has its target beyond the grid, and reads the nearest key instead.
        box: whether the keys are those of a box; else they are any integers of one axis, as in an enumeration.
    """

    alpha: float
    shifts: tuple[float, ...]
    distance: float = 0.0
    outside: bool = False
    box: bool = True

    @property
    def axes(self) -> int:
        """Axes along which the scores are a sum."""
        return len(self.shifts)

    @property
    def number_claims(self) -> frozenset[str]:
        """The claims by which the scores of an enumeration are those of one axis."""
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
        """A sharpness with which a head centred on a pixel leaks no less, as computed, than this one.

        Let the nearest key be at g from the centre, |g|^2 <= G = `distance`, and the centre f_i = |`shifts[i]`| from an
        integer on each axis. A rival n pixels from that key scores -alpha (G + k) with k >= sum of n_i^2 - 2 |n_i| f_i
        >= (1 - 2 f) |n|^2, where f is the largest f_i: on the grid by expanding |n - f|^2, and beyond its border
        because all rivals are on the far side, where k >= |n|^2. Scores are computed with a relative error of at most
        c = gamma_m, m = 4 + axes and one for a cast of alpha. So the computed gap to a rival is at least
        alpha (k - c (2 G + k)) (1 - u), hence alpha' |n|^2 or more with

            alpha' = alpha (1 - u) ((1 - 2 f) (1 - c) - 2 c G).

        On the grid and on a pixel alpha itself is returned: there `computed_leak` counts what scores are off by.

        Args:
            format_name: format of the attention weights; scores are computed in its accumulator.
        Returns:
            alpha', rounded down; 0 where there is none, as halfway between two pixels.
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
        # The nearest key's own score may overflow, and infinity minus infinity is no number.
        if not self.alpha * self.distance * 2 <= inner.largest:
            return 0.0
        with ctx.workprec(BALL_PRECISION):
            relative = arb(gamma(CENTRED_ROUNDINGS + self.axes, u))
            # The gap loses c of what it is, and twice c of the nearest key's own score, whose error every difference
            # has.
            kept = (1 - 2 * arb(off)) * (1 - relative) - 2 * relative * arb(self.distance)
            return max(0.0, down(positive_ball(self.alpha) * (1 - arb(u)) * kept))

    def leak(self) -> Claimed:
        """Upper bound on the mass off the target, in real arithmetic."""
        if max(self.shifts) > 0.5:
            return Claimed(1.0)
        leak = leaked_mass_diagonal([self.alpha] * self.axes, self.shifts)
        return Claimed(leak, claims_of(leak) | self.number_claims)

    def computed_leak(self, format_name: str, exp_ulps: float) -> Claimed:
        """Upper bound on the mass off the target, as computed; exactly 0 where every other weight is 0.

        A share: 1, which names no theorem, where nothing is said of it.
        """
        sharpness = self.sharpness(format_name)
        leak = computed_leak(sharpness, self.axes, format_name, exp_ulps) if sharpness > 0 else math.inf
        if not leak < 1:
            return Claimed(1.0)
        return Claimed(leak, claims_under([self.centred], *sorted(claims_of(leak), reverse=True)) | self.number_claims)


def soft_reading(
    head: Head, keys: tuple[int, ...], arithmetic: Arithmetic, score_error: float
) -> tuple[Claimed, RoundingBound]:
    """The leak of a head of any sharpness, and `soft_mixing_bound` beside it: neither below what claim ROW proves.

    Where that says nothing useful the leak counts as 1, and the rounding is that of a mean with any weights.
    """
    mixing = soft_mixing_bound(head, keys, arithmetic, score_error)
    if not mixing.factor <= 1 or max(head.shifts) > 0.5:
        return Claimed(1.0), any_mean_bound(math.prod(keys), arithmetic)
    proved = heads_of_row(head, keys, arithmetic, score_error)
    if proved is None or any(head.shifts):
        return head.leak(), mixing
    leak = max(head.leak(), up(Fraction(proved.leak(head.axes), ONE)))
    claims = claims_under([head.premises, ArithmeticPremises.of(arithmetic)], program_claim(arithmetic))
    return Claimed(leak, claims_of(head.leak()) | claims), mixing


def soft_mixing_bound(head: Head, keys: tuple[int, ...], arithmetic: Arithmetic, score_error: float) -> RoundingBound:
    """Bound on |computed sum over keys of weight * x - the same in real arithmetic| for a head of any sharpness.

    That of claim ROW, for the number of near keys that serves best; of one axis after the other where the arithmetic is
    so, each of them for tokens that reach further. A centre f beside a key counts as one on it with the sharpness
    `(1 - 2 f) alpha`, by which its scores fall at least.

    Args:
        keys: sides of the box of keys; they matter only where flushing may add up.
        score_error: of a fused kernel, the largest error of a score.
    Returns:
        A bound of `factor * max |x| + absolute`; infinite where nothing can be said.
    Raises:
        AlphaError: alpha is not positive and finite.
    Source: proved as claim ROW of proofs/, but for sums that are stored each time, which count twice.
    """
    positive_ball(head.alpha)
    heads = heads_of_row(head, keys, arithmetic, score_error)
    if heads is None:
        return NOTHING
    claims = claims_under([head.premises, ArithmeticPremises.of(arithmetic)], program_claim(arithmetic), "SOFT")
    return RoundingBound(up(Fraction(heads.mixing(ONE), ONE)), up(Fraction(heads.mixing(0), ONE)), claims)


def any_mean_bound(keys: int, arithmetic: Arithmetic) -> RoundingBound:
    """Bound on |computed mean| - max |x| for any scores; beside a leak of 1 it bounds what the mean is from any x.

    Raises:
        UsageError: there are too many keys for the bound.
    """
    inner, storage = accumulator_of(arithmetic.format), storage_of(arithmetic.format)
    with ctx.workprec(BALL_PRECISION):
        u, cast, tiny = arb(inner.unit_roundoff), 1 + arb(storage.unit_roundoff), arb(inner.smallest_normal)
        each = storage.unit_roundoff if arithmetic.stores_means else inner.unit_roundoff
        cut = 2 * arb(format_of(arithmetic.format).unit_roundoff) if format_of(arithmetic.format).cuts else 0
        coarse = (1 + cut) ** 2 - 1 + 2 * arb(gamma(4 * keys, each))
        weights = (1 + u) ** 2 * cast / (1 - arb(gamma(keys, inner.unit_roundoff)))
        lost = (2 * keys + 1) * tiny + keys * arb(storage.smallest_subnormal)
        return RoundingBound(
            up(weights * (1 + coarse) * cast - 1 + keys * 8 * lost), up(8 * lost), frozenset({WITHOUT_THEOREM})
        )


@lru_cache(maxsize=4096)
def heads_of_row(head: Head, keys: tuple[int, ...], arithmetic: Arithmetic, score_error: float) -> SoftHeads | None:
    """The heads as claim ROW takes them, of the reach at which its bound is least; None where it says nothing."""
    # A rival n places from the nearest key is at least (1 - 2 f) n^2 further from the centre, by `sharpness`.
    alpha = Fraction(head.alpha) * (1 - 2 * Fraction(max(head.shifts)))
    if not alpha >= LEAST_ALPHA:
        return None
    # Over a box the softmax is one an axis: fewer keys are summed at once, and the errors of the axes add up.
    apart = arithmetic.by_axis and head.box
    longest, together = (max(keys), 1) if apart else (math.prod(keys), head.axes)
    score, score_lost, ulps, exp_lost, stored = errors(head, alpha, longest, together, arithmetic, score_error)
    numbers = longest, score, score_lost, ulps, exp_lost, stored
    # More near keys count more roundings, fewer leave more to the far keys: the best reach is found by trying some.
    tried = reaches(alpha, arithmetic, max(keys) - 1 if head.box else None, score, score_lost, ulps)
    found = (
        SoftHeads(
            head.axes, apart, int(alpha * ONE), reach, *numbers, softmax, mean, 4 if arithmetic.stores_means else 2
        )
        for softmax, mean, reach in settings(tried, longest, together, arithmetic)
    )
    # Every reach gives a valid bound, so the least of them is one too.
    return min((heads for heads in found if heads.fits), key=lambda heads: heads.mixing(ONE), default=None)


def reaches(
    alpha: Fraction, arithmetic: Arithmetic, farthest: int | None, score: int, score_lost: int, ulps: int
) -> Sequence[int]:
    """The reaches to try; where sums truncate, the one beyond which every weight is 0.

    A far key moves a sum to nearest by no more than it weighs, so any reach gives a bound. It may move a sum that
    truncates by a unit in the last place, however little it weighs, so there all keys count whose weight is not 0. A
    weight m places away is at most (1 + d) e^(c0 - (1 - c) alpha m^2), and 0 below half of the smallest number of the
    storage; before a cast we halve once more, for the error of exp. No key is farther than the box is long.
    """
    inner, storage = accumulator_of(arithmetic.format), storage_of(arithmetic.format)
    first, last = int(math.sqrt(NEAREST / alpha)), math.ceil(math.sqrt(FARTHEST / alpha)) + 2
    # Rounding to nearest moves a sum by no more than a far key weighs. Truncation moves it by a whole unit.
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
    """The arithmetic of a softmax over so many axes together, that of its mean, and the reach of the keys counted."""
    form, inner, storage = (which(arithmetic.format) for which in (format_of, accumulator_of, storage_of))
    u, cast, tiny = map(Fraction, (inner.unit_roundoff, storage.unit_roundoff, inner.smallest_normal))
    losses = tiny, tiny, tiny + Fraction(storage.smallest_subnormal)
    roundoff, cut, casts = u * (2 if arithmetic.truncates or form.cuts else 1), Fraction(0), int(storage != inner)
    if form.cuts:
        cut = 2 * Fraction(form.unit_roundoff)
    kept, stores = cast * casts, arithmetic.stores_means and casts
    for reach in reaches:
        terms = max(keys, (2 * reach + 1) ** together)
        softmax = Setting.counting(u, 0, cast, losses, 0, 0, 0, 0)
        mean = Setting.counting(roundoff, cut, kept, losses, terms, terms, casts, casts)
        # A sum that is stored after each step is rounded twice a step, and has no cast at the end.
        if stores:
            mean = Setting.counting((1 + roundoff) * (1 + cast) - 1, cut, 0, losses, terms, terms, 0, terms)
        yield softmax, mean, reach


def errors(
    head: Head, alpha: Fraction, keys: int, together: int, arithmetic: Arithmetic, score_error: float
) -> tuple[int, int, int, int, int]:
    """The errors of scores, exponentials and stored weights, as numbers of a row."""
    inner = accumulator_of(arithmetic.format)
    with ctx.workprec(BALL_PRECISION):
        u, tiny = arb(inner.unit_roundoff), arb(inner.smallest_normal)
        relative, constant, exact = score_errors(head, together, arithmetic, score_error)
        d = 2 * arb(arithmetic.exp_ulps) * u
        # A fused kernel rescales its sums where a block of keys raises the maximum: an exponential and a product.
        if arithmetic.fused:
            d = (1 + d) * ((1 + d) * (1 + u)) ** math.ceil(keys / BLOCK) - 1
        # Below e^-depth an exponential is cut to 0. A score that is off may bring one there that is not so far down.
        depth, sharp = -tiny.log(), positive_ball(head.alpha)
        cut = tiny * 2**CUT_BITS * (relative * depth + constant + 4 * u * (depth + sharp * head.distance)).exp()
        lost = (arb(arithmetic.exp_ulps) + 1) * tiny + cut
        # On a pixel distances are exact while they fit the significand, and farther keys weigh next to nothing.
        if exact:
            lost += (1 + d) * (-arb(alpha.numerator) / alpha.denominator * 2**inner.precision * (1 - relative)).exp()
        score, score_lost, ulps, exp_lost, stored = (
            as_integer(min(up(each), 1e30)) for each in (relative, constant, d, lost, tiny)
        )
        return score, score_lost, ulps, exp_lost, stored


def score_errors(head: Head, axes: int, arithmetic: Arithmetic, score_error: float) -> tuple[arb, arb, bool]:
    """c, c0 and whether distances are exact: a score over so many axes, less the largest, is off by c |s| + c0 at most.

    A distance between integers is exact while its square fits the significand, so one product and the sum over the axes
    round, and a cast of alpha; else the difference and its square round as well, and what the largest is off by is
    off everywhere. Scores of features are off by `score_error` each.
    """
    inner = accumulator_of(arithmetic.format)
    u, tiny = arb(inner.unit_roundoff), arb(inner.smallest_normal)
    if arithmetic.fused:
        return u, (1 + u) * 2 * arb(score_error) + tiny, False
    added = 1 + arb(gamma(axes, inner.unit_roundoff))
    if max(head.shifts) == 0 and head.distance == 0:
        return (1 + u) ** 2 * added - 1, added * axes * tiny, True
    relative, sharp = (1 + u) ** 5 * added - 1, positive_ball(head.alpha)
    lost = 4 * axes * (1 + sharp) * tiny
    return (1 + u) * (1 + relative) - 1, (1 + u) * 2 * (relative * sharp * head.distance + lost) + tiny, False
