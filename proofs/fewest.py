"""How few heads a convolution needs, with the heads: the construction of claim HEADS."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

import flint
import numpy as np
import torch
from torch import nn

from conv2attn.errors import UnsupportedError
from conv2attn.layers.theorem import Convolution, as_convolution, combinations, tap_matrix
from conv2attn.layers.theorem.tap_matrix import TapMatrix
from conv2attn.theory.basis import Offset
from conv2attn.theory.bounds.dyadic import pivots


@final
@dataclass(frozen=True, eq=False)
class FewestHeads:
    """`hard` one-hot heads, or `free` position-only heads, whose rows of attention are free on the kernel.

    `patterns` (free, taps) are such rows over `offsets`: non-negative, each with the sum 1; the convolution's taps are
    `sum_h patterns[h, t] matrices[h]`, with matrices (free, d_out, d_in / groups).
    """

    hard: int
    free: int
    offsets: tuple[Offset, ...]
    patterns: tuple[tuple[Fraction, ...], ...]
    matrices: TapMatrix


def fewest_heads(convolution: nn.Module | Convolution) -> FewestHeads:
    """The smallest numbers of heads of width min(d_in, d_out) that express a convolution, with a construction.

    Hard heads: one for each tap that is not zero. Free heads: the rank r of the taps if their column space holds a
    vector that is positive on all taps that are not zero, decided by a linear programme in rational numbers; else
    r + 1. The rank counts what exceeds the rounding of the weights.

    Source: claim HEADS of proofs/.
    """
    layer = as_convolution(convolution)
    matrix = tap_matrix(layer)
    used = np.flatnonzero(matrix.any(1))
    columns = combinations(matrix[used], torch.finfo(layer.weight.dtype).eps / 2)
    rank = columns.shape[1]
    exact = [[Fraction(float(x)) for x in row] for row in columns]
    ray = positive_combination(exact) if rank else []
    if ray is None:
        patterns = [[Fraction(1)] * len(used), *(made_positive(column) for column in zip(*exact, strict=True))]
    else:
        patterns = positive_basis(exact, ray) if rank else []
    scaled = [[x / sum(pattern) for x in pattern] for pattern in patterns]
    rows = tuple(spread_pattern(pattern, used.tolist(), len(matrix)) for pattern in scaled)
    floats = np.array([[float(x) for x in row] for row in rows]).reshape(len(rows), len(matrix))
    matrices = np.linalg.lstsq(floats.T, matrix, rcond=None)[0] if rank else np.zeros((0, matrix.shape[1]))
    shape = (len(rows), layer.d_out, layer.d_in // layer.groups)
    return FewestHeads(len(used), len(rows), layer.offsets, rows, matrices.reshape(shape))


def positive_combination(rows: Sequence[Sequence[Fraction]]) -> list[Fraction] | None:
    """Some x with `rows x > 0` in every entry, checked in fractions, or None where a y >= 0 with `y rows = 0` shows, in
    fractions too, that there is none.

    HiGHS proposes both for rows scaled by powers of two, which keeps all signs; the support of its y is solved exactly.

    Raises:
        UnsupportedError: neither of its two candidates is right (C2A110).
    """
    from scipy.optimize import linprog

    floats = np.array([[float(x) for x in row] for row in rows])
    floats = np.ldexp(floats, -np.frexp(np.abs(floats).max(1, keepdims=True))[1])
    primal = linprog(np.zeros(floats.shape[1]), A_ub=-floats, b_ub=-np.ones(len(floats)), bounds=(None, None))
    if primal.status == 0:
        x = [Fraction(float(each)) for each in primal.x]
        if all(sum((a * b for a, b in zip(row, x, strict=True)), Fraction(0)) > 0 for row in rows):
            return x
    count = len(rows)
    dual = linprog(np.zeros(count), A_eq=np.vstack([floats.T, np.ones(count)]), b_eq=[0.0] * floats.shape[1] + [1.0])
    used = [i for i in range(count) if dual.status == 0 and dual.x[i] > 1e-12]
    null = (
        flint.fmpq_mat(
            [
                [flint.fmpq(x.numerator, x.denominator) for x in column]
                for column in zip(*(rows[i] for i in used), strict=True)
            ]
        )
        if used
        else None
    )
    if null is not None and vanishes_somewhere_positive(null):
        return None
    raise UnsupportedError(
        "C2A110",
        "whether some combination of the taps is positive could not be decided exactly",
        "Pass another convolution, or check_span for each shift.",
    )


def vanishes_somewhere_positive(matrix: Any) -> bool:
    """Whether the null space of a matrix of fractions is one line, of numbers of one sign."""
    reduced, rank = matrix.rref()
    width = matrix.ncols()
    if rank != width - 1:
        return False
    free = next(c for c in range(width) if c not in pivots(matrix))
    return all(reduced[i, free] < 0 for i in range(rank))


def made_positive(column: tuple[Fraction, ...]) -> list[Fraction]:
    """A column plus a constant that makes it positive."""
    least = 1 - min(*column, Fraction(0))
    return [x + least for x in column]


def positive_basis(columns: list[list[Fraction]], ray: list[Fraction]) -> list[list[Fraction]]:
    """A basis of the columns' span without negative entries: u = columns ray > 0, and c_j + m u for all but one j.

    Left out is a column that u needs, so that the others and u still are a basis.
    """
    u = [sum((c * x for c, x in zip(row, ray, strict=True)), Fraction(0)) for row in columns]
    out = next(j for j, x in enumerate(ray) if x)
    rest = [column for j, column in enumerate(zip(*columns, strict=True)) if j != out]
    lifts = [max(Fraction(0), *(-c / x for c, x in zip(column, u, strict=True))) for column in rest]
    return [u, *([c + m * x for c, x in zip(column, u, strict=True)] for column, m in zip(rest, lifts, strict=True))]


def spread_pattern(pattern: list[Fraction], used: list[int], taps: int) -> tuple[Fraction, ...]:
    """A pattern over all taps, 0 where it is not used."""
    values = dict(zip(used, pattern, strict=True))
    return tuple(values.get(t, Fraction(0)) for t in range(taps))
