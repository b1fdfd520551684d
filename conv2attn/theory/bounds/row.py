"""The proved bound on the difference of a convolution and a layer of heads in one output channel, in integers.

An integer x represents x / 2^256, and every step rounds up. The formulas are those of claims FLOAT and SOFT, written
with sums, products and 1 / (1 - x) alone, as in the program proofs/formal/Rows.v. Claim ROW proves that program. This
file is its translation, and tests compare the integers of both.
"""

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Self, final

from conv2attn.theory.bounds.formats import accumulator_of, format_of, storage_of

ONE = 1 << 256
CAPPED = 2048 * ONE  # a sharpness beyond this changes nothing: e^-2048 is below every number of a float format
# The extracted program loops by recursion, and its stack ends at about 2^17 calls.
LONGEST_LOOP = 1 << 16
# A number of a float format times ONE is below 1 << 1281. Longer integers would double their digits in each square.
LARGEST = 1 << 2048
MOST_CAST = 4096 * ONE  # the factors of all casts multiply to at most e^4096
INVERSE_E = -(-ONE * 3 // 8)  # above 1 / e
Number = float | Fraction


def as_integer(number: Number) -> int:
    """The integer that represents `number`, rounded up."""
    exact = Fraction(number)
    return -(-exact.numerator * ONE // exact.denominator)


@final
@dataclass(frozen=True)
class Setting:
    """How a sum of products is formed: six errors as integers over 2^256, then four counts.

    Args:
        roundoff: relative error of a product and of a sum.
        cut: relative error of an operand that is cut.
        cast: relative error of a stored number.
        loss, sum_loss, cast_loss: absolute error of a product, a sum and a store if its result is subnormal.
        products, terms: number of products and of summands.
        casts: how many partial sums that contain one summand are stored, the result included.
        stored: how many partial sums are stored in all.
    """

    roundoff: int
    cut: int
    cast: int
    loss: int
    sum_loss: int
    cast_loss: int
    products: int
    terms: int
    casts: int
    stored: int

    @classmethod
    def of(
        cls,
        terms: int,
        format_name: str,
        *,
        bias: bool = True,
        casts: int = 1,
        stored: int | None = None,
        truncating: bool = False,
        flush_to_zero: bool = False,
    ) -> Self:
        """The sum that `bounds.convolution_bound` bounds, from the same arguments."""
        form, inner, storage = format_of(format_name), accumulator_of(format_name), storage_of(format_name)
        # Truncation errs by up to a whole unit in the last place, where rounding to nearest errs by half of one.
        coarse, stored = 2 if truncating or form.cuts else 1, casts if stored is None else stored
        # A sum that underflows is exact (Hauser 1996): it is a multiple of the smallest subnormal. A product is not.
        losses = [
            coarse * Fraction(inner.smallest_subnormal) / 2,
            Fraction(0),
            Fraction(storage.smallest_subnormal) / 2,
        ]
        # A flushed result was below the smallest normal number, whichever operation it came from.
        if flush_to_zero:
            losses = [Fraction(x.smallest_normal) for x in (inner, inner, storage)]
        cut = 2 * form.unit_roundoff if form.cuts else 0
        cast = storage.unit_roundoff if storage != inner else 0
        return cls.counting(coarse * inner.unit_roundoff, cut, cast, losses, terms, terms + bias, casts, stored)

    @classmethod
    def counting(cls, roundoff: Number, cut: Number, cast: Number, losses: Sequence[Number], *counts: int) -> Self:
        """The setting with errors given as real numbers; `losses` are the three losses, `counts` the four counts."""
        loss, sum_loss, cast_loss = map(as_integer, losses)
        return cls(as_integer(roundoff), as_integer(cut), as_integer(cast), loss, sum_loss, cast_loss, *counts)

    @property
    def fits(self) -> bool:
        """Whether a bound follows from these numbers by a short computation."""
        modest = all(map(short, astuple(self))) and self.casts <= LONGEST_LOOP and self.cast * self.casts <= MOST_CAST
        return modest and self.terms * self.roundoff < ONE

    def cost(self, terms: int) -> int:
        """The error of a sum of `terms` summands, relative to the sum of their absolute values."""
        # Each product has two operands that may be cut; the factors of cuts, sums and casts multiply (claim FLOAT).
        return both(both(power(self.cut, 2), scaled_gamma(terms, self.roundoff)), power(self.cast, self.casts))

    @cached_property
    def lost(self) -> int:
        """The absolute error of the sum that comes from subnormal results."""
        # Each loss enters the sum like a summand, so later roundings enlarge it as they enlarge the summands.
        lost = self.products * self.loss + self.terms * self.sum_loss + self.stored * self.cast_loss
        return prod(ONE + self.cost(self.terms), lost)

    def few(self, count: int, near: int, far: int, moves: int) -> int:
        """The error of a sum over few near keys and any number of far keys.

        Args:
            count: number of near summands.
            near, far: sums of the absolute values of the near and of the far summands.
            moves: by how many times its own value a far summand may move the running sum.
        """
        # gamma_n of all keys would grow with the grid. But adding b to a float errs by at most |b| under rounding to
        # nearest, so the sum moves by at most 2 |b|: a far key counts by its value, not as a rounding of the whole sum.
        moved = prod(ONE + self.cost(self.terms), far) + self.lost
        return prod(self.cost(count), near) + prod(ONE + self.cost(count), moves * moved)


@final
@dataclass(frozen=True)
class SoftHeads:
    """Soft heads whose scores fall at least like -alpha m^2 along each axis, m places from the nearest key.

    All numbers that are not counts are integers over 2^256.

    Args:
        axes: number of axes over which scores are a sum.
        apart: whether the mean is taken along one axis after the other.
        alpha: sharpness.
        reach: a key is near if it is at most this many places from the nearest key along every axis, and far otherwise.
            Roundings are counted for near keys; far keys count by their weight.
        keys: the largest number of keys in one softmax.
        score, score_lost: the error of a score s is at most `score |s| + score_lost`.
        ulps: relative error of an exponential, except at the nearest key.
        exp_lost: absolute error of an exponential.
        weight_loss: absolute error of a sum of two stored weights; 0 with gradual underflow.
        softmax: arithmetic of the softmax, whose `cast` and `cast_loss` are those of stored weights.
        mean: arithmetic of the weighted mean.
        moves: by how many times its own value a far key may move a sum: 2, or 4 where each sum is rounded twice. The
            proof covers only 2.
    """

    axes: int
    apart: bool
    alpha: int
    reach: int
    keys: int
    score: int
    score_lost: int
    ulps: int
    exp_lost: int
    weight_loss: int
    softmax: Setting
    mean: Setting
    moves: int

    @property
    def fits(self) -> bool:
        """Whether a bound follows from these numbers."""
        # Sizes first: the sums below loop `reach` times over integers that must not be long.
        numbers = (self.axes, self.alpha, self.reach, self.keys, self.score, self.score_lost, self.ulps, self.exp_lost)
        if not all(map(short, (*numbers, self.weight_loss))) or self.axes > 16 or self.reach > LONGEST_LOOP:
            return False
        if not (self.softmax.fits and self.mean.fits and self.axes > 0 and self.alpha > 0):
            return False
        if max(self.score, self.score_lost) >= ONE:
            return False
        # If the mean is taken along one axis after the other, every axis has its own softmax, with fewer keys.
        together = 1 if self.apart else self.axes
        count, roundoff = self.count(together), self.softmax.roundoff
        # Premises of ROW: gamma is defined, and the mean counts every near key.
        small = max(self.keys, count) * roundoff < ONE and count <= self.mean.terms
        # The tails converge, as the ratio of their terms is at most 4 step; the terms of the spread fall beyond the
        # reach; and the computed sum of exponentials stays above 0.
        return small and 4 * self.sums.step < ONE and self.falling(self.reach + 1) and self.doubt(together) < ONE

    @cached_property
    def sums(self) -> "ThetaSums":
        return ThetaSums.of(self)

    def square(self, m: int) -> int:
        return m * m * self.alpha

    def falling(self, m: int) -> bool:
        """Whether x q^(x / alpha) falls from x = alpha m^2 on, for the q of `ThetaSums`."""
        # Its maximum is at x = 1 / (1 - c), where c = `score`.
        return self.square(m) - prod(self.score, self.square(m)) >= ONE

    def leak(self, axes: int) -> int:
        """The weight off the nearest key, in real arithmetic."""
        # 1 - 1 / theta^n is odds / (1 + odds). This grows with the odds, so rounding the odds up rounds the leak up.
        odds = power(self.sums.others, axes)
        return -(-odds * ONE // (ONE + odds))

    def far(self, axes: int) -> int:
        """The weight of all far keys, as a fraction of the nearest key's weight."""
        # A far key is beyond the reach along at least one axis, and anywhere along the other axes: a union bound.
        return axes * prod(self.sums.tail, ONE + power(self.sums.others, axes - 1))

    def count(self, axes: int) -> int:
        """The number of near keys."""
        return (2 * self.reach + 1) ** axes

    def key_error(self, axes: int) -> int:
        """The error of the exponentials as a fraction of their sum."""
        # If every key counted with the largest error of any score, the bound would grow with the grid. But a far key,
        # whose score has a large error, has a small weight. So a key counts by its own score -x:
        # (e^(c x) - 1) e^-x <= c x e^-((1 - c) x), which is c times a term of `spread`.
        # The error `score_lost` is common to all keys, and e^x <= 1 / (1 - x).
        moved = prod(geom(self.score_lost), ONE + power(prod(self.score, self.sums.spread), axes)) - ONE
        # exp(0) = 1 is exact at the nearest key, so the error of exp acts on the leak only.
        relative = prod(ONE + self.ulps, moved) + prod(self.ulps, self.leak(axes))
        return prod(relative, ONE + self.far(axes)) + self.count(axes) * self.exp_lost

    def far_exponentials(self, axes: int) -> int:
        grown = prod(ONE + self.ulps, geom(self.score_lost))
        return prod(grown, self.far(axes)) + self.keys * self.exp_lost

    def total_lost(self, axes: int) -> int:
        """The absolute error of the sum of the exponentials."""
        # As in `Setting.few`, a far exponential moves the sum by at most twice its value.
        s = self.softmax
        lost = self.far_exponentials(axes) + self.keys * s.loss + self.keys * s.sum_loss
        grown = prod(ONE + scaled_gamma(self.keys, s.roundoff), lost)
        return prod(ONE + scaled_gamma(self.count(axes), s.roundoff), 2 * grown)

    def doubt(self, axes: int) -> int:
        """The relative error of the sum that the softmax divides by; a bound follows only if it is below 1."""
        return scaled_gamma(self.count(axes), self.softmax.roundoff) + self.key_error(axes) + self.total_lost(axes)

    def far_weights(self, axes: int) -> int:
        """The computed weight of all far keys."""
        return 2 * self.far_exponentials(axes) + self.keys * self.weight_loss

    def off(self, axes: int) -> int:
        """The sum over keys of |computed weight - softmax weight|."""
        # Near keys are bounded as in any softmax, with 1 / (1 - doubt) for its denominator. Far keys count by the sum
        # of their computed and exact weights, which is small enough that no relative error is needed.
        s, d, count = self.softmax, self.key_error(axes), self.count(axes)
        # Every weight has a reciprocal, a product and a cast, and the roundings of the sum by which it is divided.
        quotients = both(power(s.roundoff, 2), s.cast) + scaled_gamma(count, s.roundoff)
        numerator = prod(quotients, ONE + d) + 2 * d + self.total_lost(axes)
        underflow = prod(prod(ONE + s.cast, 3 * ONE + 2 * s.roundoff), s.loss) + s.cast_loss
        near = prod(numerator, geom(self.doubt(axes))) + count * underflow
        return near + self.far_weights(axes) + 2 * self.far(axes)

    def mean_error(self, axes: int) -> Callable[[int], int]:
        """The error of the mean by one softmax over `axes` axes, as a function of the largest |token|."""
        off, far, few = self.off(axes), self.far_weights(axes), partial(self.mean.few, self.count(axes))
        return lambda radius: prod(off + far, radius) + few(prod(ONE + off, radius), prod(far, radius), self.moves)

    def mixing(self, input_range: int) -> int:
        """The error of the mean over all axes, for tokens with absolute values up to `input_range`."""
        if not self.apart:
            return self.mean_error(self.axes)(input_range)
        error, total = self.mean_error(1), 0
        # The tokens of an axis are the computed means of the axis before, so the errors so far enlarge their range.
        for _ in range(self.axes):
            total += error(input_range + total)
        return total


@final
@dataclass(frozen=True)
class ThetaSums:
    """Upper bounds on sums over all m != 0, where q = e^-((1 - c) alpha) and c is the relative error of a score.

    Args:
        others: sum of q^(m^2).
        spread: sum of the maximum of x q^(x / alpha) over x >= alpha m^2. A relative error c of the scores changes the
            exponentials by at most c times this.
        tail: sum of q^(m^2) beyond the reach.
        step: ratio of the first two terms of the tail.
    """

    others: int
    spread: int
    tail: int
    step: int

    @classmethod
    def of(cls, heads: SoftHeads) -> "ThetaSums":
        q, peak = ratio(heads.alpha - prod(heads.score, heads.alpha)), prod(INVERSE_E, geom(heads.score))
        # q^(m^2) needs no power for each m: the ratio of two neighbours is q^(2 m + 1), and the ratio of ratios is q^2.
        #
        #     power_m   q     q^4   q^9   ...
        #     step      q^3   q^5   q^7   ...
        q2, power_m, step, others, spread = prod(q, q), q, prod(prod(q, q), q), 0, 0
        for m in range(1, heads.reach + 1):
            others += power_m
            spread += prod(heads.square(m), power_m) if heads.falling(m) else peak
            power_m, step = prod(power_m, step), prod(step, q2)
        # The ratios fall, so a geometric series with the first of them bounds the tail. The spread also has the factor
        # m^2, which grows by at most 4 from one m to the next.
        tail = prod(power_m, geom(step))
        spread += prod(prod(heads.square(heads.reach + 1), power_m), geom(4 * step))
        return cls(2 * (others + tail), 2 * spread, 2 * tail, step)


def short(x: int) -> bool:
    """Whether `x` is a natural number that is short enough to be multiplied; checked before anything is computed."""
    return 0 <= x <= LARGEST


def prod(x: int, y: int) -> int:
    # Floor division of the negative number rounds up.
    return -(-x * y // ONE)


def geom(x: int) -> int:
    """1 / (1 - x), for x below 1. For other x it agrees with the proved program, which does not use these values."""
    # Coq defines division by 0 as 0.
    return -(-ONE * ONE // (ONE - x)) if x != ONE else 0


def both(x: int, y: int) -> int:
    """(1 + x) (1 + y) - 1."""
    return x + y + prod(x, y)


def power(x: int, n: int) -> int:
    """(1 + x)^n - 1."""
    # One factor at a time, as in Rows.v. Repeated squaring would round at other places, so the integers would differ.
    total = 0
    for _ in range(n):
        total = both(x, total)
    return total


def scaled_gamma(n: int, roundoff: int) -> int:
    """n u / (1 - n u)."""
    return prod(n * roundoff, geom(n * roundoff))


def ratio(alpha: int) -> int:
    """e^-alpha, rounded up."""
    # (1 + alpha / 2^64)^(2^64) is at most e^alpha, and 64 squarings compute it. They round down, as it is a divisor.
    below = ONE + min(alpha, CAPPED) // (1 << 64)
    for _ in range(64):
        below = below * below // ONE
    return -(-ONE * ONE // below)
