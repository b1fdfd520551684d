"""The domains of licences as data: each prints its cell of the table and is what the tests draw from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final


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
        return f"{zero}{sign}{self.low:.3g} to {sign}{self.high:.3g}"


@final
@dataclass(frozen=True)
class Integers:
    """Whole numbers from `low` to `high`, drawn by bit length."""

    low: int
    high: int

    @property
    def edges(self) -> tuple[int, ...]:
        return self.low, self.high

    def __str__(self) -> str:
        return f"{self.low} to {self.high}"


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
    """A tuple of `least` to `most` values of one kind; all tuples of one case are equally long."""

    item: Floats | Integers
    least: int
    most: int

    @property
    def edges(self) -> tuple[tuple[Any, ...], ...]:
        return tuple((edge,) * count for count in (self.least, self.most) for edge in self.item.edges)

    def __str__(self) -> str:
        return f"{self.least} to {self.most} of {self.item}"


Part = Floats | Integers | Each | Many


@final
@dataclass(frozen=True)
class Domain:
    """The arguments of a function that a claim covers, by name, and what they fulfil together.

    Args:
        parts: one for each argument, in the order of the function.
        where: a condition in words, and the same as a function of the arguments.
    """

    parts: dict[str, Part]
    where: tuple[str, Callable[..., bool]] = ("", lambda *values: True)

    def __str__(self) -> str:
        return ", ".join([*(f"{name} {part}" for name, part in self.parts.items()), *filter(None, [self.where[0]])])


FORMATS = Each(("float64", "float32", "bfloat16", "float16", "tf32", "bf32"))
FLAG = Each((False, True))
BOUND = Many(Floats(2.0**-60, 1.0, zero=True), 2, 2)
"""A factor and an absolute error."""
