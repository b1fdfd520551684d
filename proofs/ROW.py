"""An executable bound on the difference of two layers in one output channel, in integers that round up."""

from dataclasses import astuple, dataclass
from fractions import Fraction
from itertools import product
from typing import Self, final

from sympy import Rational, exp, symbols

from conv2attn.theory.bounds.row import (
    ONE,
    Number,
    Setting,
    SoftHeads,
    as_integer,
    both,
    geom,
    power,
    prod,
    ratio,
    short,
)

from .claim import Claim, refutation, step
from .core import finite, identity, less, sign
from .domain import FLAG, FORMATS, ULPS, Domain, Floats, Integers, Many, anything

p, w, m, x, y, c = symbols("p w m x y c", real=True)
e, S, f1, f2, a1, a2, size, d1, d2, d3 = symbols("e S f_1 f_2 a_1 a_2 M d_1 d_2 d_3", real=True)

UNIT, HALF_SUBNORMAL = ONE >> 24, ONE >> 150
FLOAT32 = Setting(UNIT, 0, UNIT, HALF_SUBNORMAL, 0, HALF_SUBNORMAL, 1, 1, 0, 0)
SUM = Setting(UNIT, 0, UNIT, HALF_SUBNORMAL, 0, HALF_SUBNORMAL, 1024, 1024, 1, 1)
PLANE = SoftHeads(2, True, 5 * ONE, 3, 1024, 4 * UNIT, 0, 4 * UNIT, HALF_SUBNORMAL, 0, SUM, SUM, 2)
THIRDS = [ONE * k // 3 for k in range(4)]


def reads(heads: SoftHeads, input_range: int) -> int:
    """|Computed mean of a head - the token at its nearest key|, for tokens up to this range."""
    return 2 * prod(heads.leak(heads.axes), input_range) + heads.mixing(input_range)


@final
@dataclass(frozen=True)
class OutputChannel:
    """One output channel of a convolution and of a layer of heads, and the radius of their inputs.

    Args:
        weights: sum of the channel's |weights|, over 2^256 as the next two.
        bias: |bias|.
        radius: the largest |input|.
        first, second: how the convolution and the channel product of the heads are computed.
        soft: the heads; None if they are exactly one-hot.
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
        """The row of `bounds.difference_bound`, from the same arguments, each taken as an exact number."""
        return cls(
            as_integer(weight_sum), as_integer(abs(Fraction(bias))), as_integer(input_range), original, converted, heads
        )

    @property
    def fits(self) -> bool:
        settings = self.first.fits and self.second.fits and all(map(short, (self.weights, self.bias, self.radius)))
        return settings and (self.soft is None or self.soft.fits)

    @property
    def bound(self) -> int | None:
        """Upper bound on |computed second - computed first| for all inputs within the radius; None unless it `fits`.

        Proved as claim ROW of proofs/.
        """
        if not self.fits:
            return None
        size = prod(self.weights, self.radius) + self.bias
        read = prod(self.weights, reads(self.soft, self.radius)) if self.soft else 0
        # Both layers are compared with the exact convolution. The second sums tokens that are off by `read` in all.
        first = prod(self.first.cost(self.first.terms), size) + self.first.lost
        return read + first + (prod(self.second.cost(self.second.terms), size + read) + self.second.lost)

    @property
    def proved(self) -> Fraction | None:
        """`bound` as a fraction; no certificate of these layers may state a smaller one."""
        return None if self.bound is None else Fraction(self.bound, ONE)

    def written(self) -> str:
        """The row as one line of integers, as the proved program reads it."""
        numbers = [1, self.weights, self.bias, self.radius, *astuple(self.first), *astuple(self.second)]
        if self.soft is None:
            return " ".join(map(str, [*numbers, 0]))
        *scalars, softmax, mean, moves = (getattr(self.soft, name) for name in SoftHeads.__dataclass_fields__)
        # The proved program has 2 built in (`few` in Rows.v); a row with 4 must not be written as if it were proved.
        assert moves == 2
        return " ".join(map(str, [*numbers, 1, *map(int, scalars), *astuple(softmax), *astuple(mean)]))


def row(soft=None, weights=ONE):
    return OutputChannel(weights, 0, ONE, FLOAT32, FLOAT32, soft)


def exactly(x):
    return Fraction(x, ONE)


def not_less(case):
    """Whether the integer stands for at least the number."""
    integer, number = case
    return exactly(integer) >= number


PRODUCTS = [(prod(x, y), exactly(x) * exactly(y)) for x, y in product(THIRDS, repeat=2)]
INVERSES = [(geom(x), 1 / (1 - exactly(x))) for x in THIRDS[:3]]
POWERS = [(both(x, y), (1 + exactly(x)) * (1 + exactly(y)) - 1) for x, y in product(THIRDS, repeat=2)]
POWERS += [(power(x, n), (1 + exactly(x)) ** n - 1) for x in THIRDS for n in range(4)]


CLAIM = Claim(
    name="ROW",
    title="A bound that runs: one output channel in integers",
    words="For one output channel, given as integers over 2^256 (the sum of its |weights|, |bias|, the radius of the "
    "inputs, and for each step its roundoff, losses and counts), the program either says nothing, or gives a bound "
    "that no difference of the convolution as computed and the layer of heads as computed exceeds: for weights, "
    "inputs and arithmetics within these numbers, in any order of summation, for heads that read exactly what their "
    "taps read, and for soft heads whose scores are a sum over the axes that falls at least like -alpha m^2, mixed "
    "over all keys at once or axis after axis, with scores and exponentials off by the fractions and amounts given. "
    "From the integers of a file it reads exactly the rows that stand there.",
    formula=r"\mathrm{bound}(z) \ge |\hat y_{\mathrm{MHSA}} - \hat y_{\mathrm{conv}}|",
    conditions=(
        "no overflow, infinity or NaN; sums are formed directly",
        "soft heads: every target is a key; the softmax rounds to nearest, or flushes; the exponential of the nearest "
        "key is 1, and none exceeds 2; sums of the mean round to nearest, or truncate where every weight beyond the "
        "reach is 0",
    ),
    source="this project; the formulas are those of FLOAT and SOFT",
    not_shown="That the numbers of a row are those of a layer and of a device; fused attention. The twin in Python, "
    "`bounds.row`, is compared with the program and not proved; the program trusts Coq's extraction, Zarith and the "
    "reading of digits.",
    licenses={
        "conv2attn.theory.bounds.soft_mixing_bound": Domain(
            {
                "alpha": Floats(0.05, 40.0),
                "shifts": Many(Floats(2.0**-20, 0.5, zero=True), 1, 3),
                "keys": Many(Integers(1, 150), 1, 3),
                "format": FORMATS,
                "exp_ulps": ULPS,
                "by_axis": FLAG,
            },
            ("targets on the grid; subnormal numbers kept", anything),
        ),
    },
    formal="whole",
    steps=(
        step("Products are rounded up, and so is 1 / (1 - x) ...", finite, PRODUCTS + INVERSES, not_less, count=19),
        step("... and (1 + x)(1 + y) - 1 and (1 + x)^n - 1.", finite, POWERS, not_less, count=32),
        step(
            "e^-5 is: (1 + a / 2^64)^(2^64) <= e^a, squared 64 times and rounded down, then inverted.",
            less,
            exp(-5),
            Rational(ratio(5 * ONE), ONE),
        ),
        step(
            "Beyond the places counted, each term is at most w times the one before: they sum to at most p / (1 - w)",
            identity,
            p + w * (p / (1 - w)),
            p / (1 - w),
        ),
        step(
            "and p / (1 - 4 w) with a factor m^2, since (m + 1)^2 <= 4 m^2 for m >= 1.",
            sign,
            4 * m**2 - (m + 1) ** 2,
            ((3, m - 1, m - 1), (4, m - 1)),
            given=(m - 1,),
        ),
        step(
            "A score x off by c x moves e^-x by at most c x e^-(1 - c) x, which is at most c / (e (1 - c)): e > 8/3.",
            less,
            Rational(8, 3),
            exp(1),
        ),
        step(
            "The leak x / (1 + x) of what the others weigh grows with x.",
            sign,
            y / (1 + y) - x / (1 + x),
            ((y - x, 1 / (1 + x), 1 / (1 + y)),),
            given=(y - x,),
            positive=(1 + x, 1 + y),
        ),
        step(
            "The difference is that of what the heads read, and the rounding of both layers, the second on tokens that "
            "reach e further.",
            sign,
            S * e + f1 * size + a1 + f2 * (size + S * e) + a2 - (d1 + d2 + d3),
            ((S * e - d1,), (f1 * size + a1 - d2,), (f2 * (size + S * e) + a2 - d3,)),
            given=(S * e - d1, f1 * size + a1 - d2, f2 * (size + S * e) + a2 - d3),
        ),
        step(
            "One product in float32: less than a millionth with exact heads; less than 1/18 with soft ones of alpha 5 "
            "in the plane, most of it the leak.",
            finite,
            [(row(), 10**6), (row(PLANE), 18)],
            lambda case: case[0].bound * case[1] < ONE,
            count=2,
        ),
        step(
            "It says nothing of a flat head, of negative numbers, of sums so long that n u >= 1.",
            finite,
            [
                row(SoftHeads(2, True, 0, 3, 1024, 0, 0, 0, 0, 0, SUM, SUM, 2)),
                row(weights=-1),
                OutputChannel(ONE, 0, ONE, Setting(UNIT, 0, 0, 0, 0, 0, 1, 1 << 24, 0, 0), FLOAT32),
            ],
            lambda each: each.bound is None,
            count=3,
        ),
        refutation("Rounded down they would not be.", finite, [(ONE // 3, Fraction(1, 3))], not_less, count=1),
    ),
    mutants=(
        step(
            "Products may be rounded down.",
            finite,
            [(x * y // ONE, exactly(x) * exactly(y)) for x, y in product(THIRDS, repeat=2)],
            not_less,
            count=16,
        ),
        step("The tail is its first term.", sign, p - (p + w * p), given=(p, w), witness={p: 1, w: 1}),
        step(
            "The squares grow at most threefold: (m + 1)^2 <= 3 m^2.",
            sign,
            3 * m**2 - (m + 1) ** 2,
            given=(m - 1,),
            witness={m: 1},
        ),
        step("1 / e is at most 1/3.", less, 3, exp(1)),
        step(
            "The layer of heads is rounded on tokens within the radius.",
            sign,
            S * e + f1 * size + a1 + f2 * size + a2 - (d1 + d2 + d3),
            given=(S * e - d1, f1 * size + a1 - d2, f2 * (size + S * e) + a2 - d3),
            witness={S: 1, e: 1, f1: 0, a1: 0, f2: 1, a2: 0, size: 1, d1: 1, d2: 0, d3: 2},
        ),
        step("Soft heads cost nothing.", finite, [(row(PLANE).bound, row().bound)], lambda b: b[0] <= b[1], count=1),
    ),
)
