"""Proposition 1 of Andreoli 2019: the coefficients of a linear layer in given operators, or that there are none."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

import numpy as np
import torch
from flint import fmpq, fmpq_mat

from conv2attn.errors import UsageError
from conv2attn.layers.framework.compare import (
    MapComparison,
    as_float,
    channel_matrices,
    check_no_hooks,
    compare,
    scaled_integers,
)
from conv2attn.theory.basis import Basis, Sides, Weights, as_basis, as_matrix, basis_of, moved_to, output_sides
from conv2attn.theory.basis.basis import field
from conv2attn.theory.basis.operator import Operator
from conv2attn.theory.bounds.dyadic import pivots
from conv2attn.verdicts import Verdict


@final
@dataclass(frozen=True)
class Expansion:
    """A linear layer in given operators: `sum_k P_k x M_k^T + b`, at given sides.

    Args:
        exists: whether there are such `M_k`, decided in rational arithmetic.
        basis: the operators with these `M_k`, each rounded once to float64; where there are none, with the nearest in
            least squares.
        unique: whether no other `M_k` give the same map: the operators are linearly independent.
        comparison: the layer beside `basis`; what rounding the `M_k` costs is its `error`.
    """

    exists: bool
    basis: Basis
    unique: bool
    comparison: MapComparison

    @property
    def verdict(self) -> Verdict:
        """Holds where such `M_k` exist, refuted where there are none."""
        return Verdict.HOLDS if self.exists else Verdict.REFUTED


def expand(layer: Any, operators: Operator, sides: Sides) -> Expansion:
    """The `M_k` with which `layer` is `sum_k P_k x M_k^T + b` for these `P_k`, or that there are none.

    Operators and weights count as the numbers that they are in float64. If the operators are a basis of all matrices
    (queries, keys), there is exactly one choice for every layer.

    Raises:
        UnsupportedError: `as_basis` does not read the layer (C2A101), or it has hooks (C2A106).
        UsageError: the operators do not map these sides to the layer's queries (C2A120), or a number is not finite
            (C2A001).
    Examples:
        >>> import torch
        >>> from conv2attn.theory.basis import Shift
        >>> from conv2attn.layers.framework import expand
        >>> found = expand(torch.nn.Conv1d(1, 1, 1), Shift(((-1,), (0,), (1,))), sides=(5,))
        >>> found.verdict, found.basis.weights.taps().count_nonzero().item()
        (<Verdict.HOLDS: 'holds'>, 1)

    Source: Andreoli 2019, Proposition 1.
    """
    check_no_hooks(layer)
    basis, operators = moved_to(as_basis(layer), "cpu"), moved_to(operators, "cpu")
    if output_sides(operators, sides) != output_sides(basis.mixing, sides):
        queries = output_sides(operators, sides), output_sides(basis.mixing, sides)
        raise UsageError(
            "C2A120",
            f"the operators have queries {queries[0]} at sides {sides}, the layer {queries[1]}",
            "Pass operators with the layer's queries, such as `basis.mixing` of a layer with its stride.",
        )
    requested, terms = as_matrix(operators, sides).detach(), as_matrix(basis.mixing, sides).detach()
    stored = [each for each in (basis.weights.value, basis.weights.output) if each is not None]
    if not all(bool(numbers.isfinite().all()) for numbers in (requested, terms, *stored)):
        raise UsageError("C2A001", "an operator or a weight is not finite", "Pass finite numbers.")
    (rows, row_shift), (mixed, mixed_shift) = (scaled_integers(each.flatten(1)) for each in (requested, terms))
    taps, tap_shift = channel_matrices(basis.weights)
    target = np.tensordot(taps.reshape(len(taps), -1).T, mixed, 1)
    scale = fmpq(1, 1) / (1 << mixed_shift + tap_shift) * (1 << row_shift)
    independent = pivots(rational(rows.T))
    coefficients = solution(rational(rows[independent]), rational(target) * scale)
    matrices = torch.zeros(len(requested), *taps.shape[1:], dtype=torch.float64)
    if coefficients is not None:
        numbers = [as_float(Fraction(int(each.p), int(each.q))) for each in coefficients.entries()]
        matrices[independent] = torch.tensor(numbers, dtype=torch.float64).reshape(*taps.shape[1:], -1).permute(2, 0, 1)
    else:
        wanted = torch.einsum("toi,tqk->oiqk", basis.weights.dense().detach().double(), terms).flatten(2).flatten(0, 1)
        nearest = torch.linalg.lstsq(requested.flatten(1).T, wanted.T, driver="gelsd").solution
        matrices = nearest.reshape(-1, *taps.shape[1:])
    bias = field(basis, sides).detach().double()
    nearest_basis = basis_of(operators, Weights(None, matrices, bias if bias.any() else None), len(sides))
    return Expansion(
        coefficients is not None,
        nearest_basis,
        len(independent) == len(requested),
        compare(basis, nearest_basis, sides),
    )


def rational(numbers: Any) -> fmpq_mat:
    """A matrix of Python integers as one of rational numbers."""
    rows, columns = numbers.shape
    return fmpq_mat(rows, columns, [fmpq(int(number)) for number in numbers.flat])


def solution(rows: fmpq_mat, target: fmpq_mat) -> fmpq_mat | None:
    """C with `C rows = target`, for independent rows; None where there is none."""
    columns = pivots(rows)
    square = fmpq_mat(len(columns), len(columns), [rows[r, c] for r in range(rows.nrows()) for c in columns])
    wanted = fmpq_mat(target.nrows(), len(columns), [target[r, c] for r in range(target.nrows()) for c in columns])
    coefficients = wanted * square.inv()
    return coefficients if coefficients * rows == target else None
