"""Given parameters in fewer numbers: narrower heads, fewer mixtures or fewer terms, within a certified error."""

import math
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from conv2attn.basis import Basis, Combination, Shift, Sides, Weights, as_matrix, terms
from conv2attn.bounds import gamma
from conv2attn.errors import UnsupportedError, UsageError

Kind = Literal["rank", "mixtures", "terms"]
UNIT_ROUNDOFF = 2.0**-53


@final
@dataclass(frozen=True, eq=False)
class Reduction:
    """A smaller layer, and a bound on its difference.

    Args:
        basis: the layer.
        size: its rank, mixtures or terms.
        error: no output differs by more than this where all inputs are within [-1, 1], both layers in exact
            arithmetic; rounded up.
    """

    basis: Basis
    size: int
    error: float


def reduce(basis: Basis, max_error: float, kind: Kind = "rank", sides: Sides | None = None) -> Reduction:
    """The smallest layer of its kind whose certified error is at most `max_error`.

    `rank` factorises each `M_k` (Eq. 13), `mixtures` factorises all of them as a matrix of terms by channel pairs
    (Eq. 9), both by singular values; `terms` leaves out those with the smallest `M_k`, and so heads.

    Args:
        sides: the size at which the error is certified. Shifts need none: their bound holds at every size.
    Raises:
        UsageError: `max_error` is not a number >= 0 (C2A001).
        UnsupportedError: grouped channels, or a family whose rows are not bounded without `sides` (C2A110).
    """
    if not max_error >= 0:
        raise UsageError("C2A001", f"max_error={max_error} is not a number >= 0")
    if basis.weights.groups != 1:
        raise UnsupportedError("C2A110", "reduce has no rule for grouped channels, whose matrices are block-diagonal")
    taps, norms = basis.weights.taps().detach(), row_sums(basis, sides)
    most = {"rank": min(taps.shape[1:]), "mixtures": len(taps), "terms": len(taps)}[kind]
    for size in range(1, most + 1):
        operators, weights, rebuilt, rounding = KINDS[kind](basis, taps, size)
        error = certified_error(taps.double(), rebuilt, rounding, norms)
        if error <= max_error:
            return Reduction(Basis(operators, weights, basis.padding, basis.sites), size, error)
    return Reduction(basis, most, 0.0)


def certified_error(taps: Tensor, rebuilt: Tensor, rounding: Tensor, norms: Tensor) -> float:
    """`max_o sum_k |P_k|_inf sum_i |M_k - M'_k|`, rounded up; `rounding` bounds the error of `rebuilt`."""
    difference = (taps - rebuilt).abs() * (1 + 2 * UNIT_ROUNDOFF) + rounding
    total = torch.einsum("toi,t->o", difference, norms).max().item()
    return math.nextafter(total * (1 + 2 * gamma(difference[:, 0].numel() + 4, UNIT_ROUNDOFF)), math.inf)


def row_sums(basis: Basis, sides: Sides | None) -> Tensor:
    """A bound on the sum of the absolute entries in a row of each `P_k`, (terms)."""
    if sides is not None:
        matrix = as_matrix(basis.mixing, sides).abs()
        return matrix.sum(-1).amax(-1) * (1 + 2 * gamma(matrix.shape[-1] + 1, UNIT_ROUNDOFF))
    if not isinstance(basis.operators, Shift):
        what = type(basis.operators).__name__
        raise UnsupportedError("C2A110", f"the rows of {what} are bounded at given sides", "Pass sides.")
    return torch.ones(terms(basis.operators), dtype=torch.float64)


Smaller = tuple[object, Weights, Tensor, Tensor]


def narrower(basis: Basis, taps: Tensor, rank: int) -> Smaller:
    """Each matrix through `rank` channels."""
    left, values, right = torch.linalg.svd(taps.double(), full_matrices=False)
    output = (left[..., :rank] * values[:, None, :rank]).to(taps)
    value = right[:, :rank].to(taps)
    wide, narrow = output.double(), value.double()
    rounding = gamma(rank + 1, UNIT_ROUNDOFF) * (wide.abs() @ narrow.abs())
    return basis.operators, Weights(value, output, basis.weights.bias), wide @ narrow, rounding


def mixed(basis: Basis, taps: Tensor, mixtures: int) -> Smaller:
    """All matrices as combinations of `mixtures`, whose operators are combinations of the given ones."""
    left, values, right = torch.linalg.svd(taps.double().flatten(1), full_matrices=False)
    coefficients = (left[:, :mixtures] * values[:mixtures]).to(taps)
    shared = right[:mixtures].to(taps)
    wide, narrow = coefficients.double(), shared.double()
    rounding = (gamma(mixtures + 1, UNIT_ROUNDOFF) * (wide.abs() @ narrow.abs())).reshape(taps.shape)
    weights = Weights(None, shared.reshape(mixtures, *taps.shape[1:]), basis.weights.bias)
    return Combination(coefficients.mT, basis.operators), weights, (wide @ narrow).reshape(taps.shape), rounding


def fewer(basis: Basis, taps: Tensor, count: int) -> Smaller:
    """The `count` terms with the largest matrices, in their order."""
    kept = taps.double().abs().sum((1, 2)).argsort(descending=True)[:count].sort().values
    rebuilt = torch.zeros_like(taps, dtype=torch.float64).index_copy(0, kept, taps.double()[kept])
    if isinstance(basis.operators, Shift):
        operators: object = Shift(tuple(basis.operators.offsets[k] for k in kept.tolist()))
    else:
        choice = torch.zeros(count, len(taps)).to(taps)
        operators = Combination(choice.index_put((torch.arange(count), kept), torch.ones(()).to(taps)), basis.operators)
    return operators, Weights(None, taps[kept], basis.weights.bias), rebuilt, torch.zeros_like(rebuilt)


KINDS = {"rank": narrower, "mixtures": mixed, "terms": fewer}
