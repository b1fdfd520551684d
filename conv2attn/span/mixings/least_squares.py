"""Mixings of least squares to hundreds of bits, from a Gram matrix that is computed exactly, so that nothing is lost.

What they are worth does not rest on how they were found.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

import flint
import numpy as np

from conv2attn.span.conditions.integer_rows import Coefficients, QueryRows, as_fraction
from conv2attn.span.conditions.problem import Array

BITS = 256
"""Binary places of a mixing: 200 more than the residuals that it is to be told from take."""
GRAM_BITS = 1024
"""Binary places of the Gram matrix when it is solved."""
RIDGES: tuple[Fraction, ...] = (Fraction(0), *(Fraction(1, 10**power) for power in (60, 50, 44, 40, *range(38, 0, -2))))
"""Regularisation, over the largest squared length of a head: none, then as little as keeps Phi within its norm."""

Mixings = list[list[Fraction]]


@final
@dataclass(frozen=True, eq=False)
class Products:
    """`A A^T` (heads, heads), `A E^T` (heads, targets), and the squared length of each row of E, exactly."""

    gram: flint.fmpq_mat
    met: flint.fmpq_mat
    length: Sequence[Fraction]

    def along(self, target: int) -> list[Fraction]:
        """`<A_h, e>` of each head."""
        return [as_fraction(self.met[h, target]) for h in range(self.met.nrows())]

    def inverse(self) -> Array | None:
        """`(A A^T)^-1` in floats; None where there is none, or it is no float."""
        heads = self.gram.nrows()
        eye = flint.fmpq_mat(heads, heads, [int(g == h) for g in range(heads) for h in range(heads)])
        solved = solve(self.gram, eye, Fraction(0))
        if solved is None or max(abs(x) for row in solved for x in row) > 2**1000:
            return None
        return np.array([[float(x) for x in row] for row in solved])


def products(rows: Iterable[QueryRows], heads: int, coefficients: Coefficients) -> Products:
    """The products over all these queries."""
    count = len(coefficients.whole)
    gram, met, length = flint.fmpq_mat(heads, heads), flint.fmpq_mat(heads, count), [0] * count
    for at in rows:
        gram += flint.fmpq_mat(at.heads * at.heads.transpose()) * flint.fmpq(1, at.unit**2)
        asked = [coefficients.of(j, at) for j in range(count)]
        sums = [sum(x * int(at.heads[h, key]) for key, x in row.items()) for h in range(heads) for row in asked]
        met += flint.fmpq_mat(flint.fmpz_mat(heads, count, sums)) * flint.fmpq(1, at.unit << coefficients.bits)
        length = [whole + sum(x * x for x in row.values()) for whole, row in zip(length, asked, strict=True)]
    return Products(gram, met, [Fraction(whole, 1 << 2 * coefficients.bits) for whole in length])


def proposals(given: Products, bound: Fraction) -> list[Mixings]:
    """For each target the least regularised mixing within the norm, and the one with the best floor by its squares.

    More regularisation than it takes to be within the norm serves neither.

    With `(A A^T + ridge) phi = A e`, `<A_h, y> = ridge phi_h` for every head, and `<y, e> = |e|^2 - phi A e`.
    """
    heads, count = given.met.nrows(), given.met.ncols()
    largest = max(as_fraction(given.gram[h, h]) for h in range(heads))
    found: list[Mixings] = []
    tried: list[tuple[Fraction, Mixings]] = []
    for ridge in RIDGES:
        solved = solve(given.gram, given.met, ridge * largest)
        tried += [] if solved is None else [(ridge * largest, solved)]
        if solved is not None and all(sum(map(abs, column)) <= bound for column in zip(*solved, strict=True)):
            break
    for j in range(count):
        along = given.along(j)
        merits: list[float] = []
        mixings = [(ridge, [row[j] for row in solved]) for ridge, solved in tried]
        for ridge, phi in mixings:
            left = given.length[j] - sum((p * x for p, x in zip(phi, along, strict=True)), Fraction(0))
            square = left - ridge * sum((p * p for p in phi), Fraction(0))
            merits.append(float(left - bound * ridge * max(map(abs, phi))) / max(float(square), 5e-324) ** 0.5)
        within = [phi for _, phi in mixings if sum(map(abs, phi)) <= bound][:1]
        best = mixings[int(np.argmax(merits))][1]
        found.append(within if best in within else [*within, best])
    return found


def solve(gram: flint.fmpq_mat, met: flint.fmpq_mat, ridge: Fraction) -> Mixings | None:
    """`(gram + ridge)^-1 met` to `BITS` binary places; None where there is no inverse."""
    held, lift = rounded(gram, GRAM_BITS), round(ridge * (1 << GRAM_BITS))
    for h in range(held.nrows()):
        held[h, h] += lift
    try:
        whole = rounded(held.solve(rounded(met, GRAM_BITS)), BITS)
    except ZeroDivisionError:
        return None
    return [[Fraction(int(whole[h, j]), 1 << BITS) for j in range(whole.ncols())] for h in range(whole.nrows())]


def rounded(matrix: Any, bits: int) -> flint.fmpz_mat:
    """The entries times two to the power `bits`, rounded down."""
    return flint.fmpz_mat(matrix.nrows(), matrix.ncols(), [(x.p << bits) // x.q for x in matrix.entries()])
