"""A point of a cone, or none, in exact rational numbers: the simplex method with Bland's rule, which ends."""

from collections.abc import Sequence
from fractions import Fraction


def positive_combination(rows: Sequence[Sequence[Fraction]]) -> list[Fraction] | None:
    """Some x with `rows x >= 1` in every entry, or None if there is none.

    x is split into two non-negative parts; an artificial variable a row is driven to 0.
    """
    count, width = len(rows), len(rows[0]) if rows else 0
    table = []
    for i, row in enumerate(rows):
        slack = [Fraction(-(i == k)) for k in range(count)]
        artificial = [Fraction(int(i == k)) for k in range(count)]
        table.append([*row, *(-x for x in row), *slack, *artificial, Fraction(1)])
    basis = [2 * width + count + i for i in range(count)]
    total = 2 * width + count
    while True:
        costs = [
            sum((r[c] for r, b in zip(table, basis, strict=True) if b >= total), Fraction(0)) for c in range(total)
        ]
        entering = next((c for c in range(total) if costs[c] > 0 and c not in basis), None)
        if entering is None:
            break
        ratios = [(row[-1] / row[entering], basis[i], i) for i, row in enumerate(table) if row[entering] > 0]
        leaving = min(ratios)[2]
        pivot(table, leaving, entering)
        basis[leaving] = entering
    if any(row[-1] for row, b in zip(table, basis, strict=True) if b >= total):
        return None
    values = {b: row[-1] for row, b in zip(table, basis, strict=True)}
    return [values.get(j, Fraction(0)) - values.get(width + j, Fraction(0)) for j in range(width)]


def pivot(table: list[list[Fraction]], leaving: int, entering: int) -> None:
    """Makes `entering` the unit vector of row `leaving`, in place."""
    factor = table[leaving][entering]
    table[leaving] = [x / factor for x in table[leaving]]
    for i, row in enumerate(table):
        if i != leaving and row[entering]:
            scale = row[entering]
            table[i] = [x - scale * y for x, y in zip(row, table[leaving], strict=True)]
