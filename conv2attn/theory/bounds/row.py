"""The bound on the difference of a convolution and a layer of heads in one output channel, in integers: what is proved.

An integer x stands for x / 2^256, and every step rounds up. These are the formulas of claims FLOAT and SOFT, written
with sums, products and 1 / (1 - x) alone, as proofs/formal/Rows.v has them: claim ROW proves that program, and tests
hold this twin equal to it.
"""

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Self, final

from conv2attn.theory.bounds.formats import accumulator_of, format_of, storage_of

ONE = 1 << 256
CAPPED = 2048 * ONE  # a sharpness beyond this changes nothing: e^-2048 is below every number of a float format
LONGEST_LOOP = (
    1 << 16
)  # no loop is longer; those of the extracted program are recursive, and its stack ends at about 2^17
LARGEST = 1 << 2048  # of any integer: numbers of a float format times ONE are below 1 << 1281
MOST_CAST = 4096 * ONE  # casts multiply to at most e^4096
INVERSE_E = -(-ONE * 3 // 8)  # above 1 / e
Number = float | Fraction


def as_integer(number: Number) -> int:
    """The integer that stands for `number`, rounded up."""
    exact = Fraction(number)
    return -(-exact.numerator * ONE // exact.denominator)


@final
@dataclass(frozen=True)
class Setting:
    """How a sum of products is formed, each as an integer over 2^256, then counts.

    Args:
        roundoff: of products and sums; `cut`: how much operands are cut; `cast`: roundoff of what is stored.
        loss, sum_loss, cast_loss: what a product, a sum and a store lose below the normal numbers.
        products, terms: how many products, and how many summands; `casts`: how often a summand is stored on its way;
            `stored`: how many partial sums are stored in all.
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
        """The sum that `bounds.convolution_bound` bounds, whose arguments these are."""
        form, inner, storage = format_of(format_name), accumulator_of(format_name), storage_of(format_name)
        coarse, stored = 2 if truncating or form.cuts else 1, casts if stored is None else stored
        losses = [
            coarse * Fraction(inner.smallest_subnormal) / 2,
            Fraction(0),
            Fraction(storage.smallest_subnormal) / 2,
        ]
        if flush_to_zero:
            losses = [Fraction(x.smallest_normal) for x in (inner, inner, storage)]
        cut = 2 * form.unit_roundoff if form.cuts else 0
        cast = storage.unit_roundoff if storage != inner else 0
        return cls.counting(coarse * inner.unit_roundoff, cut, cast, losses, terms, terms + bias, casts, stored)

    @classmethod
    def counting(cls, roundoff: Number, cut: Number, cast: Number, losses: Sequence[Number], *counts: int) -> Self:
        """The setting with these numbers, and the four counts."""
        loss, sum_loss, cast_loss = map(as_integer, losses)
        return cls(as_integer(roundoff), as_integer(cut), as_integer(cast), loss, sum_loss, cast_loss, *counts)

    @property
    def fits(self) -> bool:
        """Whether the numbers are such that a bound follows, and a short computation gives it."""
        modest = all(map(short, astuple(self))) and self.casts <= LONGEST_LOOP and self.cast * self.casts <= MOST_CAST
        return modest and self.terms * self.roundoff < ONE

    def cost(self, terms: int) -> int:
        """The relative error of a sum of so many summands, as a factor of the sum of absolute values."""
        return both(both(power(self.cut, 2), scaled_gamma(terms, self.roundoff)), power(self.cast, self.casts))

    @cached_property
    def lost(self) -> int:
        """The absolute error below the normal numbers."""
        # Losses of single steps are rounded again by all steps behind them.
        lost = self.products * self.loss + self.terms * self.sum_loss + self.stored * self.cast_loss
        return prod(ONE + self.cost(self.terms), lost)

    def few(self, count: int, near: int, far: int, moves: int) -> int:
        """Error of a sum of which `count` summands, `near` in all, are rounded, and the others, `far` in all, moved."""
        # A sum that is rounded to nearest moves by at most twice a summand: the far ones count by what they weigh
        # alone.
        moved = prod(ONE + self.cost(self.terms), far) + self.lost
        return prod(self.cost(count), near) + prod(ONE + self.cost(count), moves * moved)


@final
@dataclass(frozen=True)
class SoftHeads:
    """Soft heads whose scores fall at least like -alpha m^2 along each axis, m places from the nearest key.

    Args:
        axes: along which scores are a sum; `apart`: mixed one after the other.
        alpha: over 2^256, as all numbers below that are no counts.
        reach: keys within so many places of the nearest key along each axis are counted, the others weighed.
        keys: at most so many in a row.
        score, score_lost: a score s is off by `score |s| + score_lost`.
        ulps, exp_lost: an exponential is off by a fraction, but at the nearest key, and by an amount.
        weight_loss: what a sum of two stored weights loses; 0 with gradual underflow.
        softmax, mean: arithmetic of the softmax (its `cast`, `cast_loss` of stored weights), and of the mean.
        moves: by how often what it adds a far key moves a sum: 4 where each sum is rounded twice, which is not proved.
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
        """Whether the numbers are such that a bound follows."""
        numbers = (self.axes, self.alpha, self.reach, self.keys, self.score, self.score_lost, self.ulps, self.exp_lost)
        if not all(map(short, (*numbers, self.weight_loss))) or self.axes > 16 or self.reach > LONGEST_LOOP:
            return False
        if not (self.softmax.fits and self.mean.fits and self.axes > 0 and self.alpha > 0):
            return False
        if max(self.score, self.score_lost) >= ONE:
            return False
        # Axes that are mixed one after the other are softmaxes of one axis each, with fewer keys.
        together = 1 if self.apart else self.axes
        count, roundoff = self.count(together), self.softmax.roundoff
        small = max(self.keys, count) * roundoff < ONE and count <= self.mean.terms
        # The tails are geometric series, which need a ratio below 1; and the sum of exponentials must stay above 0.
        return small and 4 * self.sums.step < ONE and self.falling(self.reach + 1) and self.doubt(together) < ONE

    @cached_property
    def sums(self) -> "ThetaSums":
        return ThetaSums.of(self)

    def square(self, m: int) -> int:
        return m * m * self.alpha

    def falling(self, m: int) -> bool:
        """Whether x q^(x / alpha) falls from x = alpha m^2 on."""
        return self.square(m) - prod(self.score, self.square(m)) >= ONE

    def leak(self, axes: int) -> int:
        """The weight off the nearest key."""
        odds = power(self.sums.others, axes)
        return -(-odds * ONE // (ONE + odds))

    def far(self, axes: int) -> int:
        """The weight of keys beyond the reach, as a fraction of the nearest key's."""
        return axes * prod(self.sums.tail, ONE + power(self.sums.others, axes - 1))

    def count(self, axes: int) -> int:
        """The keys within the reach."""
        return (2 * self.reach + 1) ** axes

    def key_error(self, axes: int) -> int:
        """The error of the exponentials as a fraction of their sum: each counts by its own score."""
        # An exponential of a score s that is off by c |s| moves by c |s| e^s at most, which `spread` sums over the
        # keys.
        moved = prod(geom(self.score_lost), ONE + power(prod(self.score, self.sums.spread), axes)) - ONE
        # The exponential of 0 is 1 without error, so that only what leaks has the error of exponentials.
        relative = prod(ONE + self.ulps, moved) + prod(self.ulps, self.leak(axes))
        return prod(relative, ONE + self.far(axes)) + self.count(axes) * self.exp_lost

    def far_exponentials(self, axes: int) -> int:
        grown = prod(ONE + self.ulps, geom(self.score_lost))
        return prod(grown, self.far(axes)) + self.keys * self.exp_lost

    def total_lost(self, axes: int) -> int:
        """The absolute error of the sum of the exponentials."""
        s = self.softmax
        lost = self.far_exponentials(axes) + self.keys * s.loss + self.keys * s.sum_loss
        grown = prod(ONE + scaled_gamma(self.keys, s.roundoff), lost)
        return prod(ONE + scaled_gamma(self.count(axes), s.roundoff), 2 * grown)

    def doubt(self, axes: int) -> int:
        """The number that must be below 1 for a bound on the softmax."""
        return scaled_gamma(self.count(axes), self.softmax.roundoff) + self.key_error(axes) + self.total_lost(axes)

    def far_weights(self, axes: int) -> int:
        """The weight of keys beyond the reach, as computed."""
        return 2 * self.far_exponentials(axes) + self.keys * self.weight_loss

    def off(self, axes: int) -> int:
        """The sum over keys of |computed weight - softmax weight|."""
        s, d, count = self.softmax, self.key_error(axes), self.count(axes)
        # A reciprocal, a product and a cast for each weight, and the roundings of the sum that it is divided by.
        quotients = both(power(s.roundoff, 2), s.cast) + scaled_gamma(count, s.roundoff)
        numerator = prod(quotients, ONE + d) + 2 * d + self.total_lost(axes)
        underflow = prod(prod(ONE + s.cast, 3 * ONE + 2 * s.roundoff), s.loss) + s.cast_loss
        # The computed sum is at least 1 - doubt of the true one, which is what the weights are divided by.
        near = prod(numerator, geom(self.doubt(axes))) + count * underflow
        return near + self.far_weights(axes) + 2 * self.far(axes)

    def mean_error(self, axes: int) -> Callable[[int], int]:
        """For tokens up to a range, |computed mean - the same in real arithmetic|, by one softmax."""
        off, far, few = self.off(axes), self.far_weights(axes), partial(self.mean.few, self.count(axes))
        return lambda reach: prod(off + far, reach) + few(prod(ONE + off, reach), prod(far, reach), self.moves)

    def mixing(self, input_range: int) -> int:
        """The error of the mean, for tokens up to this range: over all axes at once, or one after the other."""
        if not self.apart:
            return self.mean_error(self.axes)(input_range)
        error, total = self.mean_error(1), 0
        for _ in range(self.axes):
            # The next axis reads tokens that are off already.
            total += error(input_range + total)
        return total

    def reads(self, input_range: int) -> int:
        """|What a head reads, as computed - the token at its nearest key|, for tokens up to this range."""
        return 2 * prod(self.leak(self.axes), input_range) + self.mixing(input_range)


@final
@dataclass(frozen=True)
class ThetaSums:
    """Upper bounds on sums over m != 0, q = e^-((1 - c) alpha), c the relative error of a score.

    Args:
        others: of q^(m^2).
        spread: of the most that x q^(x / alpha) is for x >= alpha m^2: an error c of scores moves exponentials by c
            moves that.
        tail: of q^(m^2) beyond the reach.
        step: the ratio of the two first terms of the tail.
    """

    others: int
    spread: int
    tail: int
    step: int

    @classmethod
    def of(cls, heads: SoftHeads) -> "ThetaSums":
        q, peak = ratio(heads.alpha - prod(heads.score, heads.alpha)), prod(INVERSE_E, geom(heads.score))
        # q^((m + 1)^2) = q^(m^2) q^(2 m + 1), and the last factor grows by q^2: no power is formed anew.
        q2, power_m, step, others, spread = prod(q, q), q, prod(prod(q, q), q), 0, 0
        for m in range(1, heads.reach + 1):
            others += power_m
            spread += prod(heads.square(m), power_m) if heads.falling(m) else peak
            power_m, step = prod(power_m, step), prod(step, q2)
        tail = prod(power_m, geom(step))
        # (m + 1)^2 is at most 4 m^2, so that these terms fall by the ratio 4 step or faster.
        spread += prod(prod(heads.square(heads.reach + 1), power_m), geom(4 * step))
        return cls(2 * (others + tail), 2 * spread, 2 * tail, step)


@final
@dataclass(frozen=True)
class OutputChannel:
    """One output channel of two layers: over 2^256 the sum of its |weights|, |bias|, and the radius of the inputs.

    `first` is the convolution as computed, `second` the sum over heads, which are one-hot where `soft` is None.
    """

    weights: int
    bias: int
    radius: int
    first: Setting
    second: Setting
    soft: SoftHeads | None = None

    @classmethod
    def of(
        cls,
        weight_sum: Number,
        bias: Number,
        input_range: Number,
        original: Setting,
        converted: Setting,
        heads: SoftHeads | None = None,
    ) -> Self:
        """The row of `bounds.difference_bound`, whose arguments these are, each as the real number that it is."""
        return cls(
            as_integer(weight_sum), as_integer(abs(Fraction(bias))), as_integer(input_range), original, converted, heads
        )

    @property
    def fits(self) -> bool:
        settings = self.first.fits and self.second.fits and all(map(short, (self.weights, self.bias, self.radius)))
        return settings and (self.soft is None or self.soft.fits)

    @property
    def bound(self) -> int | None:
        """|computed second - computed first|, at most, for all inputs within the radius; None where nothing is known.

        Proved as claim ROW of proofs/.
        """
        if not self.fits:
            return None
        size = prod(self.weights, self.radius) + self.bias
        # What the heads read is off before the channels, and that is then rounded by the sum over channels too.
        read = prod(self.weights, self.soft.reads(self.radius)) if self.soft else 0
        first = prod(self.first.cost(self.first.terms), size) + self.first.lost
        return read + first + (prod(self.second.cost(self.second.terms), size + read) + self.second.lost)

    @property
    def proved(self) -> Fraction | None:
        """`bound` as the number that it stands for: no bound of a certificate on these layers may be below it."""
        return None if self.bound is None else Fraction(self.bound, ONE)

    def written(self) -> str:
        """The row as one line of integers, as the proved program reads it."""
        numbers = [1, self.weights, self.bias, self.radius, *astuple(self.first), *astuple(self.second)]
        if self.soft is None:
            return " ".join(map(str, [*numbers, 0]))
        *scalars, softmax, mean, moves = (getattr(self.soft, name) for name in SoftHeads.__dataclass_fields__)
        assert moves == 2
        return " ".join(map(str, [*numbers, 1, *map(int, scalars), *astuple(softmax), *astuple(mean)]))


def short(x: int) -> bool:
    """Whether it is a natural number that no product makes too long: asked before anything is computed."""
    return 0 <= x <= LARGEST


def prod(x: int, y: int) -> int:
    return -(-x * y // ONE)


def geom(x: int) -> int:
    """1 / (1 - x), for x below 1; as the proved program has it elsewhere, where it says nothing."""
    return -(-ONE * ONE // (ONE - x)) if x != ONE else 0


def both(x: int, y: int) -> int:
    """(1 + x) (1 + y) - 1."""
    return x + y + prod(x, y)


def power(x: int, n: int) -> int:
    """(1 + x)^n - 1."""
    total = 0
    for _ in range(n):
        total = both(x, total)
    return total


def scaled_gamma(n: int, roundoff: int) -> int:
    """n u / (1 - n u)."""
    return prod(n * roundoff, geom(n * roundoff))


def ratio(alpha: int) -> int:
    """e^-alpha: (1 + alpha / 2^64)^(2^64) is at most e^alpha."""
    # Rounded down until the end: the reciprocal of a lower bound is an upper one.
    below = ONE + min(alpha, CAPPED) // (1 << 64)
    for _ in range(64):
        below = below * below // ONE
    return -(-ONE * ONE // below)
