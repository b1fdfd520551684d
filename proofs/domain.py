"""The domains of licences as data: each prints its cell of the table and is what the tests draw from."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import frexp
from typing import Any, final


def number(value: float) -> str:
    """A number in few digits, powers of two as such."""
    mantissa, exponent = frexp(value)
    return f"2^{exponent - 1}" if mantissa == 0.5 and abs(exponent) > 8 else f"{value:.6g}"


@final
@dataclass(frozen=True)
class Floats:
    """Floating-point numbers from `low` to `high`, with 0 and the negative ones if asked for; drawn by exponent."""

    low: float
    high: float
    zero: bool = False
    signed: bool = False

    @property
    def edges(self) -> tuple[float, ...]:
        ends = (self.low, self.high, *((0.0,) if self.zero else ()))
        return ends + tuple(-end for end in ends) if self.signed else ends

    def __str__(self) -> str:
        sign, zero = "+-" if self.signed else "", "0 or " if self.zero else ""
        return f"{zero}{sign}{number(self.low)} to {sign}{number(self.high)}"


@final
@dataclass(frozen=True)
class Integers:
    """The numbers n / `over` for whole n from `low` to `high`; drawn by the bit length of n."""

    low: int
    high: int
    over: int = 1

    @property
    def edges(self) -> tuple[float, ...]:
        return tuple(n if self.over == 1 else n / self.over for n in (self.low, self.high))

    def __str__(self) -> str:
        steps = f" in steps of 1/{self.over}" if self.over > 1 else ""
        return f"{number(self.edges[0])} to {number(self.edges[1])}{steps}"


@final
@dataclass(frozen=True)
class Each:
    """One of a few values, each of which is an edge."""

    values: tuple[Any, ...]

    @property
    def edges(self) -> tuple[Any, ...]:
        return self.values

    def __str__(self) -> str:
        return "either" if set(self.values) == {False, True} else f"each of {', '.join(map(str, self.values))}"


@final
@dataclass(frozen=True)
class Many:
    """A tuple of `least` to `most` values of one kind; all tuples of one case that have one `of` are equally long."""

    item: "Floats | Integers | Each | Many"
    least: int
    most: int
    of: str = "axes"

    def __str__(self) -> str:
        count = f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"
        return f"{self.item} for {count} {self.of}"


@final
@dataclass(frozen=True)
class Array:
    """Whole numbers of at most a `size` that is drawn, in the shape that the other arguments ask for."""

    size: Integers

    def __str__(self) -> str:
        return f"whole numbers of size {self.size}"


Part = Floats | Integers | Each | Many | Array


def anything(*values: Any) -> bool:
    """No condition."""
    return True


@final
@dataclass(frozen=True)
class Domain:
    """The part of a function that a claim covers, and the conditions on its arguments together.

    Args:
        parts: the arguments of the function, or what they are made of, by name.
        where: a condition in words, and the same as a function of all parts, those `beside` last.
        beside: what the results are compared on: by name, of the same kinds.
    """

    parts: dict[str, Part]
    where: tuple[str, Callable[..., bool]] = ("", anything)
    beside: dict[str, Part] = field(default_factory=dict)

    @property
    def all(self) -> dict[str, Part]:
        return self.parts | self.beside

    def __str__(self) -> str:
        beside = ", ".join(f"{name} {part}" for name, part in self.beside.items())
        arguments = ", ".join([*(f"{name} {part}" for name, part in self.parts.items()), *filter(None, self.where[:1])])
        return f"{arguments}; on {beside}" if beside else arguments


FORMATS = Each(("float64", "float32", "bfloat16", "float16", "tf32", "bf32"))
FLAG = Each((False, True))
ULPS = Floats(0.5, 1024.0)
BOUND = Many(Floats(2.0**-60, 1.0, zero=True), 2, 2, "numbers, a factor and an absolute error")
KERNEL, STRIDE, DILATION = (Many(Integers(1, most), 1, 3) for most in (7, 5, 4))
SPARE = Many(Integers(0, 6), 1, 3)
"""Keys an axis beyond those of one kernel."""

GRID: dict[str, Part] = {"kernel": Many(Integers(1, 3), 1, 3), "stride": Many(Integers(1, 3), 1, 3)}
GRID |= {"dilation": Many(Integers(1, 2), 1, 3), "keys to spare": Many(Integers(0, 2), 1, 3)}
HEADS_ON_GRIDS = Domain(
    {
        "centres": Many(Many(Integers(-64, 64, 8), 1, 3), 2, 2, "heads"),
        "alphas": Many(Integers(1, 4096, 64), 2, 2, "heads"),
    },
    beside=GRID,
)
HEADS_ON_A_LINE = Domain(
    {
        "heads": Many(Each(("shift", "swap", "any", "two")), 1, 4, "heads"),
        "tokens": Integers(2, 8),
        "keys": Array(Integers(1, 2**20)),
        "offsets": Each((((0,),), ((1,),), ((0,), (1,)))),
        "exact": FLAG,
    },
    ("one-hot heads that read a neighbour, a neighbour or itself, any keys, or means of any two", anything),
)
