"""Operators that are known exactly, one-hot or rational: which targets they span, at all queries."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import flint
import numpy as np
from numpy.typing import NDArray

from conv2attn.span.conditions.integer_rows import (
    Coefficients,
    QueryRows,
    hot_rows_at,
    integer_rows,
    rational_rows,
)
from conv2attn.span.conditions.portions import portions
from conv2attn.span.conditions.problem import AttentionRows, Targets
from conv2attn.span.rational.exact import Equations, Exactly, equations_at, primes, solve

START = 3000
"""Equations of rational rows that are solved at first; the others are only compared with."""


def decide_exactly(attention: AttentionRows, targets: Targets, chosen: NDArray[np.bool_]) -> Sequence[Exactly | None]:
    """For each target whether it is spanned exactly; None where the operator is not known exactly.

    Rational rows are solved at a few queries; where another query fails the solution, it is taken in, which makes the
    rank larger or refutes a target, until all queries are satisfied.
    """
    coefficients, everyone = Coefficients.exactly(targets.coefficients), range(len(targets))
    if attention.one_hot:
        return solved(equations_at(one_hot_rows(attention, targets, chosen), coefficients, everyone))
    if attention.rational is None:
        return [None] * len(targets)
    places = [(image, int(q)) for image in range(attention.images) for q in np.flatnonzero(chosen)]
    taken = places[: max(1, START // attention.width)]
    while True:
        answers = solved(equations_at(rational_rows(attention, targets, taken), coefficients, everyone))
        failing = first_unsatisfied(attention, targets, places, answers)
        if failing is None:
            return answers
        if failing in taken:
            return [None] * len(targets)
        taken = [*taken, failing]


def one_hot_rows(attention: AttentionRows, targets: Targets, chosen: NDArray[np.bool_]) -> Iterator[QueryRows]:
    """One-hot rows that differ: of each pattern its first query, where keys are known."""
    if attention.hot is None:
        return integer_rows(attention, targets, chosen)
    places = [(each.image, int(q)) for each in portions(attention, targets, chosen) for q in each.queries]
    return hot_rows_at(attention, targets, sorted(places))


def residual_of(
    attention: AttentionRows,
    targets: Targets,
    chosen: NDArray[np.bool_],
    target: int,
    weights: Sequence[float | Fraction],
) -> Fraction:
    """Residual of these weights for a target at the worst chosen query, exactly."""
    coefficients = Coefficients.exactly(targets.coefficients)
    return max(row_left(rows, coefficients, target, weights) for rows in integer_rows(attention, targets, chosen))


def row_left(rows: QueryRows, coefficients: Coefficients, target: int, weights: Sequence[float | Fraction]) -> Fraction:
    """Residual of these weights for a target at one query, exactly."""
    exact = [Fraction(w) for w in weights]
    unit = math.lcm(*(w.denominator for w in exact))
    mixing = flint.fmpz_mat([[int(w * unit) for w in exact]])
    left = [-(x << coefficients.bits) for x in (mixing * rows.heads).entries()]
    for key, number in coefficients.of(target, rows).items():
        left[key] += number * unit * rows.unit
    return Fraction(int(sum(map(abs, left))), unit * rows.unit << coefficients.bits)


def exact_row(rows: QueryRows, coefficients: Coefficients, target: int) -> Exactly | None:
    """Whether a target is spanned at one query, exactly."""
    (found,) = solved(equations_at([rows], coefficients, [target]))
    null = None if found is None or found.null is None else replace(found.null, target=target)
    return None if found is None else replace(found, null=null)


def solved(equations: Equations) -> list[Exactly | None]:
    """The answer for each target, by the first prime that keeps the rank."""
    answers = next(filter(None, (solve(equations, prime) for prime in primes())), None)
    return [None] * len(equations.asked[0]) if answers is None else answers


def first_unsatisfied(
    attention: AttentionRows, targets: Targets, places: Sequence[tuple[int, int]], answers: Sequence[Exactly | None]
) -> tuple[int, int] | None:
    """The first (image, query) at which a solution is none."""
    coefficients = Coefficients.exactly(targets.coefficients)
    held = [(j, answer.weights) for j, answer in enumerate(answers) if answer is not None and answer.contained]
    for rows in rational_rows(attention, targets, places) if held else ():
        if any(row_left(rows, coefficients, j, weights) for j, weights in held):
            return rows.image, rows.query
    return None
