"""Attention rows as integers over one denominator a query, which is what floats and declared rationals both are."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import flint
import numpy as np
from numpy.typing import NDArray

from conv2attn.bounds.dyadic import integer_matrix, over_power_of_two
from conv2attn.span.conditions.problem import Array, AttentionRows, Targets, selected


@final
@dataclass(frozen=True, eq=False)
class QueryRows:
    """At one (image, query): heads (heads, keys) over `unit`, and for each tap the key asked for, or -1.

    `floats` are the heads in float64. Of one-hot heads these may be the keys alone that are read or asked for: `keys`
    are then those of the grid.
    """

    image: int
    query: int
    unit: int
    heads: flint.fmpz_mat
    floats: Array
    places: tuple[int, ...]
    keys: tuple[int, ...] | None = None

    def key(self, column: int) -> int:
        """The key of the grid that a column is."""
        return column if self.keys is None else self.keys[column]


@final
@dataclass(frozen=True, eq=False)
class Coefficients:
    """Coefficients of each target for each tap, as integers: times two to the power `bits`."""

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
            yield integer_row(image, query, block[:, at], targets)


def integer_row(image: int, query: int, heads: Array, targets: Targets) -> QueryRows:
    """The floats (heads, keys) at one query as the exact numbers that they are."""
    whole, bits = integer_matrix(heads)
    return QueryRows(image, query, 1 << bits, whole, heads.copy(), tuple(targets.places[:, query].tolist()))


def integer_rows_at(
    attention: AttentionRows, targets: Targets, places: Sequence[tuple[int, int]]
) -> Iterator[QueryRows]:
    """The floats at these (image, query), in order of the pieces, as the exact numbers that they are."""
    wanted = set(places)
    for image in sorted({image for image, _ in wanted}):
        for _, rows, block in attention.pieces(image) if attention.images > 1 else attention.pieces():
            for query in range(rows.start, rows.stop):
                if (image, query) in wanted:
                    yield integer_row(image, query, block[:, query - rows.start], targets)


def hot_rows_at(attention: AttentionRows, targets: Targets, places: Sequence[tuple[int, int]]) -> Iterator[QueryRows]:
    """The rows of one-hot heads at these (image, query), on the keys that are read or asked for, without a softmax."""
    assert attention.hot is not None
    for image, query in places:
        read, asked = attention.hot[image, :, query].tolist(), targets.places[:, query].tolist()
        keys = sorted({*read, *asked} - {-1})
        heads = [[int(key == each) for key in keys] for each in read]
        where = tuple(keys.index(k) if k >= 0 else -1 for k in asked)
        yield QueryRows(image, query, 1, flint.fmpz_mat(heads), np.array(heads, float), where, tuple(keys))


def rational_rows(attention: AttentionRows, targets: Targets, places: Sequence[tuple[int, int]]) -> Iterator[QueryRows]:
    """The rows of the ideal operator at these (image, query)."""
    assert attention.rational is not None
    for image, query in places:
        rows = [attention.rational(head, image * targets.places.shape[1] + query) for head in range(attention.heads)]
        unit = math.lcm(*(x.denominator for row in rows for x in row))
        whole = [[x.numerator * (unit // x.denominator) for x in row] for row in rows]
        floats = np.array([[float(x) for x in row] for row in rows])
        yield QueryRows(image, query, unit, flint.fmpz_mat(whole), floats, tuple(targets.places[:, query].tolist()))


def as_fraction(number: flint.fmpq) -> Fraction:
    """A flint rational as a Fraction."""
    return Fraction(int(number.p), int(number.q))
