"""Containment decided in rational numbers, from equations that are known exactly.

Each (image, query, key) is an equation on a row of Phi. Rows of full rank modulo a 61-bit prime are solved exactly;
the solution then satisfies all other equations, a certified yes, or one fails, and that one less its combination of
the solved ones is a vector y with A y = 0 and E y != 0, a certified no.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Any, final

import flint

from conv2attn.span.conditions.condition import NullVector
from conv2attn.span.conditions.integer_rows import Coefficients, QueryRows, as_fraction

PRIMES = (2**61 - 1, 2**61 - 31, 2**61 - 45)
"""The three largest primes below 2^61; a rank is lost modulo one of them only by accident, and then the next serves."""
FURTHER = 32
"""Primes below these that are tried where a denominator has all three."""


def primes() -> Iterator[int]:
    """The primes, largest first."""
    yield from PRIMES
    yield from islice((p for p in range(PRIMES[-1] - 2, 0, -2) if flint.fmpz(p).is_prime()), FURTHER)


@final
@dataclass(frozen=True, eq=False)
class Equations:
    """Equation i is `sum_h phi_h attention[i][h] = asked[i][j]`, and stands at `places[i]` = (image, query, key)."""

    attention: Sequence[Sequence[Fraction]]
    asked: Sequence[Sequence[Fraction]]
    places: Sequence[tuple[int, int, int]]


def equations_at(rows: Iterable[QueryRows], coefficients: Coefficients, targets: Sequence[int]) -> Equations:
    """The equations of these targets at some queries, each once."""
    kinds: dict[tuple[int, tuple[int, ...]], tuple[int, int, int]] = {}
    heads, one = 0, 1 << coefficients.bits
    for held in rows:
        heads, asked = held.heads.nrows(), [coefficients.of(target, held) for target in targets]
        for key, column in enumerate(held.heads.transpose().tolist()):
            numbers = (*map(int, column), *(each.get(key, 0) for each in asked))
            kinds.setdefault((held.unit, numbers), (held.image, held.query, held.key(key)))
    attention = [[Fraction(x, unit) for x in numbers[:heads]] for unit, numbers in kinds]
    return Equations(
        attention, [[Fraction(x, one) for x in numbers[heads:]] for _, numbers in kinds], [*kinds.values()]
    )


@final
@dataclass(frozen=True)
class Exactly:
    """Whether a target is spanned, with Phi's row, or the null vector and the least residual that it leaves."""

    contained: bool
    weights: tuple[Fraction, ...] = ()
    null: NullVector | None = None
    floor: Fraction = Fraction(0)

    @property
    def norm(self) -> Fraction:
        """Sum of the absolute values of the row."""
        return sum(map(abs, self.weights), Fraction(0))


def solve(equations: Equations, prime: int) -> list[Exactly | None] | None:
    """The answer for each target, or None if the rank modulo `prime` is not the rank, or not defined."""
    heads, sides = equations.attention, equations.asked
    if not heads:
        return [None if any(row) else Exactly(True, ()) for row in zip(*sides, strict=True)]
    if any(x.denominator % prime == 0 for row in heads for x in row):
        return None
    entries = [[residue(x, prime) for x in row] for row in heads]
    modular = flint.nmod_mat(entries, prime)
    basis = pivots(modular.transpose())
    columns = pivots(modular) if basis else []
    picked = [heads[i] for i in basis]
    square = rational_matrix([[row[h] for h in columns] for row in picked]) if basis else None
    answers: list[Exactly | None] = []
    for j in range(len(sides[0])):
        known = [sides[i][j] for i in basis]
        weights = [Fraction(0)] * len(heads[0])
        if square is not None:
            solution = square.solve(rational_matrix([[x] for x in known]))
            for place, h in enumerate(columns):
                weights[h] = as_fraction(solution[place, 0])
        failing = first_failure(equations, entries, weights, j, prime)
        if failing is None:
            answers.append(Exactly(True, tuple(weights)))
            continue
        null = null_vector(equations, basis, columns, square, failing, j)
        if null is None:
            return None
        answers.append(null)
    return answers


def first_failure(
    equations: Equations, entries: Sequence[Sequence[int]], weights: Sequence[Fraction], j: int, prime: int
) -> int | None:
    """The first equation that the row of Phi violates; those that hold modulo the prime are then tried exactly."""
    held = [residue(w, prime) for w in weights]
    for i, (row, side) in enumerate(zip(entries, equations.asked, strict=True)):
        if (sum(w * x for w, x in zip(held, row, strict=True)) - residue(side[j], prime)) % prime:
            return i
    product = rational_matrix(equations.attention) * rational_matrix([[w] for w in weights])
    return next((i for i, side in enumerate(equations.asked) if as_fraction(product[i, 0]) != side[j]), None)


def null_vector(
    equations: Equations, basis: Sequence[int], columns: Sequence[int], square: Any, failing: int, j: int
) -> Exactly | None:
    """The failing equation less its combination of the basis; None if that is not one, the rank being larger."""
    row = equations.attention[failing]
    parts: list[Fraction] = []
    if square is not None:
        found = square.transpose().solve(rational_matrix([[row[h]] for h in columns]))
        parts = [as_fraction(found[place, 0]) for place in range(len(basis))]
    entries = [(failing, Fraction(1)), *((i, -c) for i, c in zip(basis, parts, strict=True) if c)]
    if any(sum(c * equations.attention[i][h] for i, c in entries) for h in range(len(row))):
        return None
    gain = sum((c * equations.asked[i][j] for i, c in entries), Fraction(0))
    if not gain:
        return None
    peaks: dict[tuple[int, int], Fraction] = {}
    for i, c in entries:
        image, query, _ = equations.places[i]
        peaks[image, query] = max(peaks.get((image, query), Fraction(0)), abs(c))
    placed = tuple((*equations.places[i], c) for i, c in entries)
    return Exactly(False, null=NullVector(j, placed), floor=abs(gain) / sum(peaks.values()))


def pivots(matrix: Any) -> list[int]:
    """Columns of the first non-zeros of the rows of the reduced echelon form."""
    reduced, rank = matrix.rref()
    found: list[int] = []
    for i in range(rank):
        start = found[-1] + 1 if found else 0
        found.append(next(c for c in range(start, matrix.ncols()) if int(reduced[i, c])))
    return found


def residue(number: Fraction, prime: int) -> int:
    """A rational number modulo a prime."""
    return number.numerator * pow(number.denominator, -1, prime) % prime


def rational_matrix(rows: Sequence[Sequence[Fraction]]) -> Any:
    """A matrix of fractions, as a matrix of flint."""
    return flint.fmpq_mat([[flint.fmpq(x.numerator, x.denominator) for x in row] for row in rows])
