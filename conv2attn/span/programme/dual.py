"""Duals that refute: numbers y at few queries, weighed exactly. They bound what every mixing leaves.

For y and any phi with `|phi|_1 <= N`, `sum_q |y_q|_max |e_q - phi A_q|_1 >= <y, e> - N max_h |<A_h, y>|`, so that phi
leaves at least the right side over `sum_q |y_q|_max` at one of the queries. Where `A y = 0` that is so for every phi.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import flint
import numpy as np

from conv2attn.bounds.dyadic import over_power_of_two
from conv2attn.span.conditions.integer_rows import (
    Coefficients,
    QueryRows,
    as_fraction,
    hot_rows_at,
    integer_rows_at,
    rational_rows,
)
from conv2attn.span.conditions.limits import Limits
from conv2attn.span.conditions.problem import Array, AttentionRows, Targets
from conv2attn.span.programme.factors import NEGLIGIBLE
from conv2attn.span.rational.exact import PRIMES, pivots

Rows = Mapping[int, QueryRows]
FINE = 128
"""Bits that a refined dual has behind those of float64."""
ROUNDS = 4
"""Refinements of a dual: each gains what float64 can tell of what is left."""
Whole = Mapping[int, Sequence[int]]


@final
@dataclass(frozen=True)
class Dual:
    """y, in integers (only its direction counts), at rows `image * queries + query`, and what it is worth exactly.

    `gain` is <y, e>, `met` max_h |<A_h, y>|, `weight` max_h <A_h, |y|>, `peak` sum_q |y_q|_max.
    """

    values: Whole
    gain: Fraction
    met: Fraction
    weight: Fraction
    peak: Fraction

    def floor(self, norm: Fraction) -> Fraction:
        """Lower bound on what every mixing of at most this norm leaves."""
        return (self.gain - norm * self.met) / self.peak if self.peak else Fraction(0)


@final
@dataclass(frozen=True)
class NormBound:
    """`|phi|_1 <= (start + slope r) / left` for every phi that leaves at most r at the queries looked at.

    With `z_h = sum_g inverse[h][g] A_g`, `phi_h = <phi A, z_h> - sum_g phi_g (<A_g, z_h> - [g = h])`.
    """

    inverse: tuple[tuple[float, ...], ...]
    rows: tuple[int, ...]
    start: Fraction
    slope: Fraction
    left: Fraction

    def within(self, limits: Limits) -> Fraction | None:
        """The largest norm of a mixing that leaves no more than `limits` let it, or None if that may be any."""
        room = self.left - Fraction(limits.per_norm) * self.slope
        return (self.start + Fraction(limits.eps) * self.slope) / room if room > 0 else None


def rows_at(
    attention: AttentionRows, targets: Targets, wanted: Sequence[int], alone: bool = False
) -> dict[int, QueryRows]:
    """The exact attention at these rows, in one pass; of one-hot heads that stand alone, on the keys that matter."""
    per_image = targets.places.shape[1]
    places = [divmod(row, per_image) for row in sorted(set(wanted))]
    hot = alone and attention.hot is not None
    found = (hot_rows_at if hot else rational_rows if attention.exact else integer_rows_at)(attention, targets, places)
    return {rows.image * per_image + rows.query: rows for rows in found}


def weighed(rows: Rows, coefficients: Coefficients, target: int, values: Whole) -> Dual:
    """The worth of y for a target, exactly."""
    heads = next(iter(rows.values())).heads.nrows()
    gain, peak, met, weight = Fraction(0), Fraction(0), [Fraction(0)] * heads, [Fraction(0)] * heads
    for row, numbers in values.items():
        held = rows[row]
        asked = coefficients.of(target, held)
        gain += Fraction(sum(number * numbers[key] for key, number in asked.items()), 1 << coefficients.bits)
        peak += max(map(abs, numbers))
        both = flint.fmpz_mat([[y, abs(y)] for y in numbers])
        products = held.heads * both
        met = [m + Fraction(int(products[h, 0]), held.unit) for h, m in enumerate(met)]
        weight = [w + Fraction(int(products[h, 1]), held.unit) for h, w in enumerate(weight)]
    return Dual(values, gain, max(map(abs, met)), max(weight), peak)


def floats_of(rows: Rows, order: Sequence[int]) -> Array:
    """The attention at these rows side by side, (heads, rows * keys), in float64."""
    return np.concatenate([rows[row].floats for row in order], axis=1)


def in_integers(y: Array, order: Sequence[int]) -> Whole:
    """y (rows * keys) as integers of at most 2^52, by row: it is a direction, and float64 tells no more of it."""
    whole = np.rint(y * (2.0**52 / (np.abs(y).max(initial=0.0) or 1.0))).astype(np.int64).reshape(len(order), -1)
    return dict(zip(order, whole.tolist(), strict=True))


def projected(attention: Array, y: Array) -> Array:
    """y less its part along the heads (heads, n), as well as float64 can."""
    for _ in range(3):
        y = y - attention.T @ np.linalg.lstsq(attention.T, y, rcond=None)[0]
    return y


def refined(rows: Rows, order: Sequence[int], values: Whole) -> Whole:
    """y less its part along the heads that float64 tells apart, to more digits than float64 has, in integers.

    Heads that are nearly dependent differ by less: exactly across those differences y would lose more than they are
    worth to a mixing of bounded norm.
    """
    directions, singular, _ = np.linalg.svd(floats_of(rows, order), full_matrices=False)
    kept = singular > NEGLIGIBLE * max(singular.max(initial=0.0), 1e-300)
    inverse = (directions[:, kept] / singular[kept] ** 2) @ directions[:, kept].T
    found = {row: [y << FINE for y in values[row]] for row in order}
    for _ in range(ROUNDS):
        met = [Fraction(0)] * len(inverse)
        for row in order:
            along = (rows[row].heads * flint.fmpz_mat([[y] for y in found[row]])).entries()
            met = [m + Fraction(int(x), rows[row].unit) for m, x in zip(met, along, strict=True)]
        weights = flint.fmpz_mat([[int(x) for x in inverse @ np.array(met, dtype=np.float64)]])
        for row in order:
            moved = (weights * rows[row].heads).entries()
            found[row] = [y - int(x) // rows[row].unit for y, x in zip(found[row], moved, strict=True)]
    return found


def null_of(rows: Rows, order: Sequence[int], values: Whole) -> Whole | None:
    """y less its part along the heads, exactly, in integers: `A y = 0` for every head; None where nothing is left."""
    unit = math.lcm(*(rows[row].unit for row in order))
    held = {row: rows[row].heads * (unit // rows[row].unit) for row in order}
    columns = {row: flint.fmpz_mat([[y] for y in values[row]]) for row in order}
    heads = held[order[0]].nrows()
    gram, along = flint.fmpz_mat(heads, heads), flint.fmpz_mat(heads, 1)
    for row in order:
        gram += held[row] * held[row].transpose()
        along += held[row] * columns[row]
    basis = pivots(flint.nmod_mat(gram, PRIMES[0]))
    if not basis:
        return values
    square = flint.fmpq_mat(flint.fmpz_mat([[gram[h, g] for g in basis] for h in basis]))
    numerator, denominator = square.solve(flint.fmpq_mat(flint.fmpz_mat([[along[h, 0]] for h in basis]))).numer_denom()
    weights = flint.fmpz_mat(heads, 1)
    for place, h in enumerate(basis):
        weights[h, 0] = numerator[place, 0]
    left = {
        row: [int(x) for x in (columns[row] * denominator - held[row].transpose() * weights).entries()] for row in order
    }
    shared = math.gcd(*(x for part in left.values() for x in part))
    return {row: [x // shared for x in part] for row, part in left.items() if any(part)} or None


def norm_bound(rows: Rows, coefficients: Coefficients, target: int) -> NormBound | None:
    """How large mixings are that leave little at these queries, for an approximate inverse of the heads' products."""
    order = sorted(rows)
    attention = floats_of(rows, order)
    gram = attention @ attention.T
    if np.linalg.cond(gram) > 1e15:
        return None
    inverse = np.asarray(np.linalg.inv(gram), dtype=np.float64)
    unit, whole = over_power_of_two(inverse)
    given, count = flint.fmpz_mat(whole), len(inverse)
    slope, along = Fraction(0), [Fraction(0)] * count
    met = flint.fmpq_mat(count, count)
    for row in order:
        held = rows[row]
        made, scale = given * held.heads, unit * held.unit
        keys = made.ncols()
        entries = [int(x) for x in made.entries()]
        slope += Fraction(sum(max(map(abs, entries[h * keys : (h + 1) * keys])) for h in range(count)), scale)
        for key, number in coefficients.of(target, held).items():
            along = [
                a + Fraction(number * entries[h * keys + key], scale << coefficients.bits) for h, a in enumerate(along)
            ]
        met += flint.fmpq_mat(held.heads * made.transpose()) * flint.fmpq(1, held.unit * scale)
    lost = [sum((abs(as_fraction(met[g, h]) - (g == h)) for h in range(count)), Fraction(0)) for g in range(count)]
    left = 1 - max(lost)
    if left <= 0:
        return None
    numbers = tuple(tuple(map(float, line)) for line in inverse)
    return NormBound(numbers, tuple(order), sum(map(abs, along), Fraction(0)), slope, left)
