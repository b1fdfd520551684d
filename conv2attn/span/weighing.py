"""Exact arithmetic on a few rows: the floor that a dual proves, and whether exact rows span a target.

Let e be a target, A the attention of the heads, and y a dual: any vector with one number per (row, key). For every
mixing phi with `|phi|_1 <= N`, `sum_q |y_q|_max |e_q - phi A_q|_1 >= <y, e> - N max_h |<A_h, y>|`. So at one of the
rows q, the residual of phi is at least the right side divided by `sum_q |y_q|_max`: this is the floor. If `A y = 0`, it
holds for phi of every norm.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import final

import flint
import numpy as np
from numpy.typing import NDArray

from conv2attn.span.attention_rows import Array, AttentionRows, Whole
from conv2attn.span.equations import Targets, portions
from conv2attn.span.least_squares import NEGLIGIBLE
from conv2attn.theory.bounds.dyadic import over_power_of_two, pivots

FINE = 128
"""Bits of a refined dual beyond those of float64."""
ROUNDS = 4
"""Refinements of a dual. One refinement removes about as many bits of its inner products with heads as float64 has."""
Dyadic = Mapping[int, Sequence[int]]
"""A dual as one integer per key, for some rows. Only the direction of a dual matters, so it has no scale."""


@final
@dataclass(frozen=True, eq=False)
class ExactRow:
    """A row of attention in exact numbers.

    For one-hot heads, a row may hold only the keys that a head reads or a tap names.

    Args:
        row: its number, `image * queries + query`.
        unit: the denominator of all `numbers`.
        numbers: numerators of the attention, Python integers, (heads, keys).
        floats: the attention in floats, (heads, keys).
        places: the key of each tap, or -1.
        keys: the places of the keys in the grid, if not all keys are held.
        times: how many equal rows of the group it represents.
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
        """`numbers` as a matrix of FLINT, kept because the conversion costs more than a product."""
        return flint.fmpz_mat(self.numbers.tolist())


@final
@dataclass(frozen=True, eq=False)
class Coefficients:
    """Coefficients of each target for each tap, as integers over two to the power `bits`."""

    bits: int
    whole: Sequence[Sequence[int]]

    @staticmethod
    def exactly(numbers: Array) -> "Coefficients":
        """The coefficients of an array of floats (targets, taps), without rounding."""
        unit, integers = over_power_of_two(numbers)
        return Coefficients(unit.bit_length() - 1, integers)

    def of(self, target: int, row: ExactRow) -> dict[int, int]:
        """The row of a target, as a mapping from keys to integers."""
        entries: dict[int, int] = {}
        for number, key in zip(self.whole[target], row.places, strict=True):
            if key >= 0 and number:
                entries[key] = entries.get(key, 0) + number
        return entries


def exact_rows(attention: AttentionRows, targets: Targets, wanted: Sequence[int]) -> dict[int, ExactRow]:
    """These rows in exact numbers: the declared fractions, otherwise the floats as exact fractions."""
    exact = {}
    for row in wanted:
        image, query = divmod(row, targets.places.shape[1])
        floats = attention.read(image, np.array([query]))[:, 0]
        places = tuple(targets.places[:, query].tolist())
        if attention.exact:
            assert attention.rational is not None
            rows = [attention.rational(head, row) for head in range(attention.heads)]
            # One unit for the whole row keeps its numbers integers, which FLINT multiplies as matrices.
            unit = math.lcm(*(x.denominator for each in rows for x in each))
            integers = [[x.numerator * (unit // x.denominator) for x in each] for each in rows]
        else:
            # A float is an integer divided by a power of two, so the attention is not rounded here.
            unit, integers = over_power_of_two(floats)
        exact[row] = ExactRow(row, unit, np.array(integers, dtype=object), floats, places)
    return exact


def hot_rows(attention: AttentionRows, targets: Targets, group: Whole) -> Iterator[ExactRow]:
    """The rows of one-hot heads in a group, one for each pattern of equal keys (see `equations`)."""
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
    """A dual y, with its exact inner products with a target e and with the attention A of the heads.

    Args:
        values: y.
        gain: <y, e>.
        attended: max_h |<A_h, y>|.
        weight: max_h <A_h, |y|>.
        peak: sum_q |y_q|_max.
    """

    values: Dyadic
    gain: Fraction
    attended: Fraction
    weight: Fraction
    peak: Fraction

    def floor(self, norm: Fraction) -> Fraction:
        """Lower bound on the largest residual, over rows, of every mixing with at most this norm."""
        return (self.gain - norm * self.attended) / self.peak if self.peak else Fraction(0)

    def excludes(self, eps: Fraction, per_norm: Fraction) -> Fraction | None:
        """The norm up to which every mixing has a residual above `eps + per_norm |phi|_1`; None for every norm."""
        # A mixing of norm N that serves satisfies `gain - N attended <= (eps + per_norm N) peak`, solved for N here.
        spare = self.gain - eps * self.peak
        slope = self.attended + per_norm * self.peak
        return max(Fraction(0), spare / slope) if slope else (None if spare > 0 else Fraction(0))


def weighed(rows: Mapping[int, ExactRow], coefficients: Coefficients, target: int, values: Dyadic) -> Dual:
    """The dual y with its exact inner products with a target and with the heads; `values` holds y."""
    unit = math.lcm(*(rows[row].unit for row in values))
    along_heads = weight = np.zeros(len(next(iter(rows.values())).numbers), dtype=object)
    gain = peak = 0
    for row, numbers in values.items():
        exact, y = rows[row], np.array(numbers, dtype=object)
        # The target is sparse, so <y, e> needs only the keys of its taps.
        gain += sum(number * numbers[key] for key, number in coefficients.of(target, exact).items())
        # By Hoelder, <y_q, e_q - phi A_q> is at most the largest entry of y_q times the residual at q.
        peak += max(map(abs, numbers))
        # If y is not orthogonal to the heads, a mixing phi may reduce <y, e> by up to |phi|_1 max_h |<A_h, y>|.
        along_heads = along_heads + exact.numbers @ y * (unit // exact.unit)
        weight = weight + exact.numbers @ np.abs(y) * (unit // exact.unit)
    gained = Fraction(gain, 1 << coefficients.bits)
    attended = Fraction(int(np.abs(along_heads).max()), unit)
    return Dual(values, gained, attended, Fraction(int(weight.max()), unit), Fraction(peak))


def duals_near(rows: Mapping[int, ExactRow], order: Sequence[int], y: Array) -> Iterator[Dyadic]:
    """Three integer duals near y (rows * keys): projected off the heads in float64, unprojected, projected more finely.

    None of the three is best for all heads. If heads nearly depend on each other, a projection also removes the part of
    y along their small differences. A mixing of bounded norm gains little from these differences, but the dual may need
    that part.
    """
    attention = np.concatenate([rows[row].floats for row in order], axis=1)
    across = y
    # One projection leaves rounding along the heads, which a norm of 1e6 makes large. Every further projection gains
    # digits (reorthogonalisation: Giraud, Langou and Rozloznik 2005).
    for _ in range(3):
        across = across - attention.T @ np.linalg.lstsq(attention.T, across, rcond=None)[0]
    yield in_integers(across, order)
    yield in_integers(y, order)
    yield refined(rows, order, attention, in_integers(y, order))


def in_integers(y: Array, order: Sequence[int]) -> Dyadic:
    """y (rows * keys) scaled to integers of at most 2^52, by row. A dual may be scaled freely."""
    # float64 has 53 bits, so larger integers would only hold its rounding.
    scale = 2.0**52 / (np.abs(y).max(initial=0.0) or 1.0)
    integers = np.rint(y * scale).astype(np.int64).reshape(len(order), -1)
    return dict(zip(order, integers.tolist(), strict=True))


def refined(rows: Mapping[int, ExactRow], order: Sequence[int], attention: Array, values: Dyadic) -> Dyadic:
    """y in integers, projected off the heads to more digits than float64 has.

    Directions of the heads that float64 does not resolve are left out.
    """
    directions, singular, _ = np.linalg.svd(attention, full_matrices=False)
    kept = singular > NEGLIGIBLE * singular[0]
    # The pseudo-inverse of A A^T in float64 only proposes a step. Inner products are computed exactly after every step,
    # so its rounding may cost another round, but no correctness.
    inverse = (directions[:, kept] / singular[kept] ** 2) @ directions[:, kept].T
    integers = {row: [y << FINE for y in values[row]] for row in order}
    for _ in range(ROUNDS):
        along_heads = [Fraction(0)] * len(inverse)
        for row in order:
            along = (rows[row].heads * flint.fmpz_mat([[y] for y in integers[row]])).entries()
            along_heads = [m + Fraction(int(x), rows[row].unit) for m, x in zip(along_heads, along, strict=True)]
        # Iterative refinement (Wilkinson 1963): the residual is exact, and the correction is rough.
        weights = flint.fmpz_mat([[int(x) for x in inverse @ np.array(along_heads, dtype=np.float64)]])
        for row in order:
            moved = (weights * rows[row].heads).entries()
            integers[row] = [y - int(x) // rows[row].unit for y, x in zip(integers[row], moved, strict=True)]
    return integers


def projected(rows: Mapping[int, ExactRow], values: Dyadic) -> tuple[list[Fraction], Dyadic]:
    """The exact mixing phi of least squares for y, and a positive multiple of `y - phi A` in integers.

    This remainder is orthogonal to every head over the whole group. A row that represents n equal rows counts n times,
    and its numbers in the remainder are multiplied by n.
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
    # Heads may depend on each other exactly. A basis of them has the same span, and its Gram matrix has an inverse.
    weights, basis = flint.fmpz_mat(heads, 1), pivots(gram)
    square = flint.fmpq_mat(flint.fmpz_mat([[gram[h, g] for g in basis] for h in basis]))
    right = flint.fmpq_mat(flint.fmpz_mat([[along[h, 0]] for h in basis]))
    # With one common denominator, all further numbers are integers.
    above, below = square.solve(right).numer_denom()
    for place, h in enumerate(basis):
        weights[h, 0] = above[place, 0]
    remainder = {row: columns[row] * below - matrices[row].transpose() * weights for row in order}
    # Sums over a dual run over the representatives alone, so it is orthogonal to the heads only with this factor.
    numbers = {row: [int(x) * rows[row].times for x in remainder[row].entries()] for row in order}
    # Only the direction matters, so common factors, which may have thousands of digits, are dropped.
    shared = math.gcd(*(x for part in numbers.values() for x in part)) or 1
    phi = [Fraction(int(weights[h, 0]) * unit, int(below)) for h in range(heads)]
    return phi, {row: [x // shared for x in part] for row, part in numbers.items() if any(part)}


def spanned_exactly(
    rows: Mapping[int, ExactRow], coefficients: Coefficients, target: int
) -> tuple[tuple[Fraction, ...], Dual | None]:
    """Projects a target on exact rows. A zero remainder gives the mixing; any other remainder is a dual.

    Such a dual is orthogonal to every head, so it refutes mixings of every norm.
    """
    target_rows: dict[int, list[int]] = {}
    for row, exact in rows.items():
        target_rows[row] = [0] * exact.numbers.shape[1]
        for key, number in coefficients.of(target, exact).items():
            target_rows[row][key] = number
    # A target of zeros has the mixing 0, and needs no projection.
    if not any(map(any, target_rows.values())):
        return (Fraction(0),) * len(next(iter(rows.values())).numbers), None
    phi, remainder = projected(rows, target_rows)
    if remainder:
        return (), weighed(rows, coefficients, target, remainder)
    return tuple(x / (1 << coefficients.bits) for x in phi), None


def row_residual(
    row: ExactRow, coefficients: Coefficients, target: int, weights: Sequence[float | Fraction]
) -> Fraction:
    """The exact residual `|e_q - phi A_q|_1` of these weights for a target at one row."""
    # All numbers get one denominator: `unit` of the weights, times the row's own, times the coefficients' power of two.
    exact = [Fraction(w) for w in weights]
    unit = math.lcm(*(w.denominator for w in exact))
    mixing = np.array([int(w * unit) for w in exact], dtype=object)
    remainder = [-(x << coefficients.bits) for x in mixing @ row.numbers]
    for key, number in coefficients.of(target, row).items():
        remainder[key] += number * unit * row.unit
    return Fraction(sum(map(abs, remainder)), unit * row.unit << coefficients.bits)


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
