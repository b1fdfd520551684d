"""Operators that are known exactly, one-hot or rational: which targets they span, at all queries."""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import flint
import numpy as np
from numpy.typing import NDArray

from conv2attn.span.conditions.integer_rows import Coefficients, QueryRows, integer_rows, rational_rows
from conv2attn.span.conditions.problem import AttentionRows, Targets
from conv2attn.span.rational.equations import Equations, one_hot_equations, rational_equations
from conv2attn.span.rational.exact import Exactly, primes, solve

START = 3000
"""Equations of rational rows that are solved at first; the others are only compared with."""


def decide_exactly(attention: AttentionRows, targets: Targets, chosen: NDArray[np.bool_]) -> Sequence[Exactly | None]:
    """For each target whether it is spanned exactly; None where the operator is not known exactly.

    Rational rows are solved at a few queries; where another query fails the solution, it is taken in, which makes the
    rank larger or refutes a target, until all queries are satisfied.
    """
    if attention.one_hot:
        return solved(one_hot_equations(attention, targets, chosen), len(targets))
    if attention.rational is None:
        return [None] * len(targets)
    places = [(image, int(q)) for image in range(attention.images) for q in np.flatnonzero(chosen)]
    taken = places[: max(1, START // attention.width)]
    while True:
        answers = solved(rational_equations(attention, targets, taken), len(targets))
        failing = first_unsatisfied(attention, targets, places, answers)
        if failing is None:
            return answers
        if failing in taken:
            return [None] * len(targets)
        taken = [*taken, failing]


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
    asked = coefficients.of(target, rows)
    kinds: dict[tuple[Fraction, ...], tuple[int, int, int]] = {}
    for key in range(rows.heads.ncols()):
        column = [Fraction(int(rows.heads[h, key]), rows.unit) for h in range(rows.heads.nrows())]
        wanted = Fraction(asked.get(key, 0), 1 << coefficients.bits)
        kinds.setdefault((*column, wanted), (rows.image, rows.query, rows.key(key)))
    found = solved(Equations([k[:-1] for k in kinds], [k[-1:] for k in kinds], list(kinds.values())), 1)[0]
    null = None if found is None or found.null is None else replace(found.null, target=target)
    return None if found is None else replace(found, null=null)


def solved(equations: Equations, count: int) -> list[Exactly | None]:
    """The answer for each of `count` targets, by the first prime that keeps the rank."""
    answers = next(filter(None, (solve(equations, prime) for prime in primes())), None)
    return [None] * count if answers is None else answers


def first_unsatisfied(
    attention: AttentionRows, targets: Targets, places: Sequence[tuple[int, int]], answers: Sequence[Exactly | None]
) -> tuple[int, int] | None:
    """The first (image, query) at which a solution is none."""
    coefficients = Coefficients.exactly(targets.coefficients)
    held = [(j, answer.weights) for j, answer in enumerate(answers) if answer is not None and answer.contained]
    if not held:
        return None
    unit = math.lcm(*(w.denominator for _, weights in held for w in weights))
    mixing = flint.fmpz_mat([[int(w * unit) for w in weights] for _, weights in held])
    for rows in rational_rows(attention, targets, places):
        made = mixing * rows.heads
        for i, (j, _) in enumerate(held):
            asked, left = coefficients.of(j, rows), [made[i, key] << coefficients.bits for key in range(made.ncols())]
            for key, number in asked.items():
                left[key] -= number * unit * rows.unit
            if any(left):
                return rows.image, rows.query
    return None
