"""Attention rows as integers over one denominator a query, which is what floats and declared rationals both are."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import flint
import numpy as np
from numpy.typing import NDArray

from conv2attn.span.conditions.problem import Array, AttentionRows, Targets, selected

MANTISSA = 53
"""Bits of a float64."""


@final
@dataclass(frozen=True, eq=False)
class QueryRows:
    """At one (image, query): heads (heads, keys) over `unit`, and for each tap the key asked for, or -1."""

    image: int
    query: int
    unit: int
    heads: flint.fmpz_mat
    places: tuple[int, ...]


@final
@dataclass(frozen=True, eq=False)
class Coefficients:
    """What each target asks of each tap, times two to the power `bits`."""

    bits: int
    whole: Sequence[Sequence[int]]

    @staticmethod
    def exactly(numbers: Array) -> "Coefficients":
        """Those of floats (targets, taps)."""
        unit, whole = over_power_of_two(numbers)
        return Coefficients(unit.bit_length() - 1, whole)

    def of(self, target: int, rows: QueryRows) -> dict[int, int]:
        """The row that a target asks for at a query, as keys and numbers."""
        asked: dict[int, int] = {}
        for number, key in zip(self.whole[target], rows.places, strict=True):
            if key >= 0 and number:
                asked[key] = asked.get(key, 0) + number
        return asked


def integer_rows(attention: AttentionRows, targets: Targets, chosen: NDArray[np.bool_]) -> Iterator[QueryRows]:
    """The exact rows of the chosen queries: the rational ones where declared, otherwise the floats as they are."""
    if attention.exact:
        places = [(image, int(q)) for image in range(attention.images) for q in np.flatnonzero(chosen)]
        yield from rational_rows(attention, targets, places)
        return
    for image, queries, block in selected(attention, chosen):
        for at, query in enumerate(map(int, queries)):
            unit, whole = over_power_of_two(block[:, at])
            yield QueryRows(image, query, unit, flint.fmpz_mat(whole), tuple(targets.places[:, query].tolist()))


def rational_rows(attention: AttentionRows, targets: Targets, places: Sequence[tuple[int, int]]) -> Iterator[QueryRows]:
    """The rows of the ideal operator at these (image, query)."""
    assert attention.rational is not None
    for image, query in places:
        rows = [attention.rational(head, image * targets.places.shape[1] + query) for head in range(attention.heads)]
        unit = math.lcm(*(x.denominator for row in rows for x in row))
        whole = [[x.numerator * (unit // x.denominator) for x in row] for row in rows]
        yield QueryRows(image, query, unit, flint.fmpz_mat(whole), tuple(targets.places[:, query].tolist()))


def over_power_of_two(rows: Array) -> tuple[int, list[list[int]]]:
    """A power of two and integers that are the floats times it, exactly."""
    mantissas, exponents = np.frexp(rows)
    least = min(int(exponents.min(initial=0, where=rows != 0)) - MANTISSA, 0)
    integers = np.ldexp(mantissas, MANTISSA).astype(np.int64).astype(object)
    lifts = np.where(rows != 0, exponents - MANTISSA - least, 0).astype(object)
    return 1 << -least, np.left_shift(integers, lifts).tolist()


def as_fraction(number: flint.fmpq) -> Fraction:
    """A flint rational as a Fraction."""
    return Fraction(int(number.p), int(number.q))
