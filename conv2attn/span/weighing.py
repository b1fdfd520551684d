"""Exact arithmetic on a few rows: the floor that a dual proves, and whether exact rows span a target.

For y and any phi with `|phi|_1 <= N`, `sum_q |y_q|_max |e_q - phi A_q|_1 >= <y, e> - N max_h |<A_h, y>|`, so that phi
leaves at least the right side over `sum_q |y_q|_max` at one of the rows. Where `A y = 0` that is so for every phi.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, final

import flint
import numpy as np
from numpy.typing import NDArray

from conv2attn.span.attention_rows import Array, AttentionRows, Whole
from conv2attn.span.equations import Targets, portions
from conv2attn.span.least_squares import NEGLIGIBLE
from conv2attn.theory.bounds.dyadic import over_power_of_two

FINE = 128
"""Bits that a refined dual has behind those of float64."""
ROUNDS = 4
"""Refinements of a dual: each gains what float64 can tell of what is left."""
Dyadic = Mapping[int, Sequence[int]]
"""Integers at some rows, one for each key: of a dual, only the direction counts."""


@final
@dataclass(frozen=True, eq=False)
class ExactRow:
    """A row: `numbers` (heads, keys), Python's integers, over `unit`, and for each tap the key asked for, or -1.

    For one-hot heads it may have only the keys that are read or asked for; `keys` are then their places in the grid.
    The row counts `times` times.
    """

    row: int
    unit: int
    numbers: NDArray[np.object_]
    floats: Array
    places: tuple[int, ...]
    keys: tuple[int, ...] | None = None
    times: int = 1

    @cached_property
    def heads(self) -> flint.fmpz_mat:
        """The numbers as a matrix of FLINT, which costs more to make than a product of them."""
        return flint.fmpz_mat(self.numbers.tolist())


@final
@dataclass(frozen=True, eq=False)
class Coefficients:
    """Coefficients of each target for each tap, as integers over two to the power `bits`."""

    bits: int
    whole: Sequence[Sequence[int]]

    @staticmethod
    def exactly(numbers: Array) -> "Coefficients":
        """Those of floats (targets, taps)."""
        unit, integers = over_power_of_two(numbers)
        return Coefficients(unit.bit_length() - 1, integers)

    def of(self, target: int, row: ExactRow) -> dict[int, int]:
        """The row that a target asks for, as keys and numbers."""
        entries: dict[int, int] = {}
        for number, key in zip(self.whole[target], row.places, strict=True):
            if key >= 0 and number:
                entries[key] = entries.get(key, 0) + number
        return entries


def exact_rows(attention: AttentionRows, targets: Targets, wanted: Sequence[int]) -> dict[int, ExactRow]:
    """These rows in exact numbers: fractions where they are declared, otherwise the floats as they are."""
    exact = {}
    for row in wanted:
        image, query = divmod(row, targets.places.shape[1])
        floats, places = attention.read(image, np.array([query]))[:, 0], tuple(targets.places[:, query].tolist())
        if attention.exact:
            assert attention.rational is not None
            rows = [attention.rational(head, row) for head in range(attention.heads)]
            # One unit for the whole row keeps its numbers integers, which FLINT multiplies as matrices.
            unit = math.lcm(*(x.denominator for each in rows for x in each))
            integers = [[x.numerator * (unit // x.denominator) for x in each] for each in rows]
        else:
            unit, integers = over_power_of_two(floats)
        exact[row] = ExactRow(row, unit, np.array(integers, dtype=object), floats, places)
    return exact


def hot_rows(attention: AttentionRows, targets: Targets, group: Whole) -> Iterator[ExactRow]:
    """The rows of one-hot heads in a group, each pattern once, on the keys that are read or asked for."""
    for portion in portions(attention, targets, group):
        assert portion.keys is not None
        for at, (row, times) in enumerate(zip(portion.rows, portion.times, strict=True)):
            floats = portion.attention[:, at]
            integers = floats.astype(int).astype(object)
            places = tuple(portion.places[:, at].tolist())
            yield ExactRow(int(row), 1, integers, floats, places, tuple(portion.keys[at].tolist()), int(times))


@final
@dataclass(frozen=True)
class Dual:
    """y, and what it is worth exactly: `gain` is <y, e>, `attended` max_h |<A_h, y>|, `weight` max_h <A_h, |y|>, `peak`
    sum_q |y_q|_max."""

    values: Dyadic
    gain: Fraction
    attended: Fraction
    weight: Fraction
    peak: Fraction

    def floor(self, norm: Fraction) -> Fraction:
        """Lower bound on what every mixing of at most this norm leaves."""
        return (self.gain - norm * self.attended) / self.peak if self.peak else Fraction(0)

    def excludes(self, eps: Fraction, per_norm: Fraction) -> Fraction | None:
        """The norm up to which no mixing leaves `eps + per_norm |phi|_1`; None where that is every norm."""
        spare = self.gain - eps * self.peak
        slope = self.attended + per_norm * self.peak
        return max(Fraction(0), spare / slope) if slope else (None if spare > 0 else Fraction(0))


def weighed(rows: Mapping[int, ExactRow], coefficients: Coefficients, target: int, values: Dyadic) -> Dual:
    """The exact inner products of y with a target and with the heads."""
    unit = math.lcm(*(rows[row].unit for row in values))
    along_heads = weight = np.zeros(len(next(iter(rows.values())).numbers), dtype=object)
    gain = peak = 0
    for row, numbers in values.items():
        exact, y = rows[row], np.array(numbers, dtype=object)
        # The target is sparse, so that <y, e> reads the keys that are asked for alone.
        gain += sum(number * numbers[key] for key, number in coefficients.of(target, exact).items())
        # By Hoelder <y_q, r_q> is at most the largest entry of y_q times the 1-norm of what is left there.
        peak += max(map(abs, numbers))
        # A y that meets the heads loses up to |phi| times what it meets, whichever mixing is tried.
        along_heads = along_heads + exact.numbers @ y * (unit // exact.unit)
        weight = weight + exact.numbers @ np.abs(y) * (unit // exact.unit)
    gained, across, absolute = Fraction(gain, 1 << coefficients.bits), np.abs(along_heads).max(), weight.max()
    return Dual(values, gained, Fraction(int(across), unit), Fraction(int(absolute), unit), Fraction(peak))


def duals_near(rows: Mapping[int, ExactRow], order: Sequence[int], y: Array) -> Iterator[Dyadic]:
    """Duals near y (rows * keys): less its part along the heads in float64, as it is, and less that part more finely.

    Heads that are nearly dependent differ by less than float64 tells: exactly across those differences y would lose
    more than they are worth to a mixing of bounded norm.
    """
    attention = np.concatenate([rows[row].floats for row in order], axis=1)
    across = y
    # One projection leaves rounding along the heads, which a norm of 1e6 makes large. Each more gains digits.
    for _ in range(3):
        across = across - attention.T @ np.linalg.lstsq(attention.T, across, rcond=None)[0]
    yield in_integers(across, order)
    yield in_integers(y, order)
    yield refined(rows, order, attention, in_integers(y, order))


def in_integers(y: Array, order: Sequence[int]) -> Dyadic:
    """y (rows * keys) as integers of at most 2^52, by row: it is a direction, and float64 tells no more of it."""
    # float64 has 53 bits: more than 2^52 would only write down its rounding.
    integers = np.rint(y * (2.0**52 / (np.abs(y).max(initial=0.0) or 1.0))).astype(np.int64).reshape(len(order), -1)
    return dict(zip(order, integers.tolist(), strict=True))


def refined(rows: Mapping[int, ExactRow], order: Sequence[int], attention: Array, values: Dyadic) -> Dyadic:
    """y less its part along the heads that float64 tells apart, to more digits than float64 has, in integers."""
    directions, singular, _ = np.linalg.svd(attention, full_matrices=False)
    kept = singular > NEGLIGIBLE * singular[0]
    # The inverse is of float64, and only proposes a step: what is left is counted in integers after each of them.
    inverse = (directions[:, kept] / singular[kept] ** 2) @ directions[:, kept].T
    integers = {row: [y << FINE for y in values[row]] for row in order}
    for _ in range(ROUNDS):
        along_heads = [Fraction(0)] * len(inverse)
        for row in order:
            along = (rows[row].heads * flint.fmpz_mat([[y] for y in integers[row]])).entries()
            along_heads = [m + Fraction(int(x), rows[row].unit) for m, x in zip(along_heads, along, strict=True)]
        # Iterative refinement (Wilkinson 1963): the residual exactly, the correction roughly.
        weights = flint.fmpz_mat([[int(x) for x in inverse @ np.array(along_heads, dtype=np.float64)]])
        for row in order:
            moved = (weights * rows[row].heads).entries()
            integers[row] = [y - int(x) // rows[row].unit for y, x in zip(integers[row], moved, strict=True)]
    return integers


def projected(rows: Mapping[int, ExactRow], values: Dyadic) -> tuple[list[Fraction], Dyadic]:
    """The weights phi of least squares for y, and `y - phi A` in integers, exactly: it meets no head.

    Rows count as often as they stand for others, and what is left is given so often.
    """
    order = list(values)
    unit = math.lcm(*(rows[row].unit for row in order))
    matrices = {row: rows[row].heads * (unit // rows[row].unit) for row in order}
    columns = {row: flint.fmpz_mat([[y] for y in values[row]]) for row in order}
    heads = matrices[order[0]].nrows()
    # Normal equations are exact in integers. In floats they would lose half of the digits.
    gram, along = flint.fmpz_mat(heads, heads), flint.fmpz_mat(heads, 1)
    for row in order:
        gram += matrices[row] * matrices[row].transpose() * rows[row].times
        along += matrices[row] * columns[row] * rows[row].times
    # Heads may depend on each other exactly: a basis of them has the same span, and its Gram matrix an inverse.
    weights, basis = flint.fmpz_mat(heads, 1), pivots(gram)
    square = flint.fmpq_mat(flint.fmpz_mat([[gram[h, g] for g in basis] for h in basis]))
    above, below = square.solve(flint.fmpq_mat(flint.fmpz_mat([[along[h, 0]] for h in basis]))).numer_denom()
    for place, h in enumerate(basis):
        weights[h, 0] = above[place, 0]
    left = {row: columns[row] * below - matrices[row].transpose() * weights for row in order}
    numbers = {row: [int(x) * rows[row].times for x in left[row].entries()] for row in order}
    # The direction alone counts, so common factors of thousands of digits are dropped.
    shared = math.gcd(*(x for part in numbers.values() for x in part)) or 1
    phi = [Fraction(int(weights[h, 0]) * unit, int(below)) for h in range(heads)]
    return phi, {row: [x // shared for x in part] for row, part in numbers.items() if any(part)}


def pivots(matrix: Any) -> list[int]:
    """Columns of the first non-zeros of the rows of the reduced echelon form of integers."""
    reduced, _, rank = matrix.rref()
    columns: list[int] = []
    for i in range(rank):
        start = columns[-1] + 1 if columns else 0
        columns.append(next(c for c in range(start, matrix.ncols()) if reduced[i, c] != 0))
    return columns


def spanned_exactly(
    rows: Mapping[int, ExactRow], coefficients: Coefficients, target: int
) -> tuple[tuple[Fraction, ...], Dual | None]:
    """Whether these rows, which are exact, span a target: it is its own exact projection, with Phi's row, or else the
    rest is a dual that no row of Phi gets around."""
    target_rows: dict[int, list[int]] = {}
    for row, exact in rows.items():
        target_rows[row] = [0] * exact.numbers.shape[1]
        for key, number in coefficients.of(target, exact).items():
            target_rows[row][key] = number
    # Nothing is asked for at these rows, and no head is needed for it.
    if not any(map(any, target_rows.values())):
        return (Fraction(0),) * len(next(iter(rows.values())).numbers), None
    phi, left = projected(rows, target_rows)
    if left:
        return (), weighed(rows, coefficients, target, left)
    return tuple(x / (1 << coefficients.bits) for x in phi), None


def row_left(row: ExactRow, coefficients: Coefficients, target: int, weights: Sequence[float | Fraction]) -> Fraction:
    """Residual of these weights for a target at one row, exactly."""
    exact = [Fraction(w) for w in weights]
    unit = math.lcm(*(w.denominator for w in exact))
    mixing = np.array([int(w * unit) for w in exact], dtype=object)
    left = [-(x << coefficients.bits) for x in mixing @ row.numbers]
    for key, number in coefficients.of(target, row).items():
        left[key] += number * unit * row.unit
    return Fraction(sum(map(abs, left)), unit * row.unit << coefficients.bits)


def on_all_keys(dual: Dual, rows: Mapping[int, ExactRow], width: int) -> Dyadic:
    """The numbers of a dual at all keys of the grid."""
    on_grid = {}
    for row, numbers in dual.values.items():
        keys = rows[row].keys
        entries = list(numbers) if keys is None else [0] * width
        for key, number in zip(keys or (), numbers, strict=True) if keys is not None else ():
            if key >= 0:
                entries[key] = number
        on_grid[row] = entries
    return on_grid
