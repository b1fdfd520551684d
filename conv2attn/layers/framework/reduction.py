"""Smaller layers within a certified error: narrower heads, or fewer of them."""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.theory.basis import Basis, Combination, Operator, Shift, Sides, Weights, as_matrix, terms
from conv2attn.theory.bounds import gamma

ReductionKind = Literal["rank", "terms"]
UNIT_ROUNDOFF = 2.0**-53


@final
@dataclass(frozen=True, eq=False)
class Reduction:
    """A smaller layer, and a bound on its difference.

    Args:
        basis: the layer.
        size: its rank (in each group), or its number of terms.
        error: no output differs by more than this where all inputs are within [-1, 1], both layers in exact
            arithmetic; rounded up.
    """

    basis: Basis
    size: int
    error: float


def reduce(basis: Basis, max_error: float, kind: ReductionKind = "rank", sides: Sides | None = None) -> Reduction:
    """The smallest layer of its kind whose certified error is at most `max_error`, found by bisection of its size.

    `rank` factorises each `M_k` by singular values (Eq. 13); `terms` leaves out those with the smallest `M_k`, and so
    heads.

    Args:
        sides: the size at which the error is certified. Shifts need none: their bound holds at every size.
    Raises:
        UsageError: `max_error` is not a number >= 0 (C2A001).
        UnsupportedError: a family whose rows are not bounded without `sides` (C2A110).
    """
    if not max_error >= 0:
        raise UsageError("C2A001", f"max_error={max_error} is not a number >= 0", "Pass a number of at least 0.")
    taps, norms = basis.weights.taps().detach().cpu(), row_sums(basis, sides).cpu()
    width = min(taps.shape[1] // basis.weights.groups, taps.shape[2])
    most = {"rank": width, "terms": len(taps)}[kind]
    reduce_to = REDUCTIONS[kind](basis, taps)

    def reduction_at(size: int) -> Reduction:
        operators, weights, rebuilt, rounding = reduce_to(size)
        error = certified_error(taps.double(), rebuilt, rounding, norms)
        weights = weights.to(basis.weights.like.device)
        return Reduction(Basis(operators, weights, basis.padding, basis.sites), size, error)

    size = 1 + bisect_left(range(1, most), True, key=lambda each: reduction_at(each).error <= max_error)
    reduction = reduction_at(size)
    return reduction if reduction.error <= max_error else Reduction(basis, most, 0.0)


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
        family = type(basis.operators).__name__
        raise UnsupportedError("C2A110", f"the rows of {family} are bounded at given sides", "Pass sides.")
    return torch.ones(terms(basis.operators), dtype=torch.float64)


Smaller = Callable[[int], tuple[Operator, Weights, Tensor, Tensor]]


def lower_rank(basis: Basis, taps: Tensor) -> Smaller:
    """Each block of each matrix factorised through fewer channels."""
    blocks = taps.double().unflatten(1, (basis.weights.groups, -1))
    left, values, right = torch.linalg.svd(blocks, full_matrices=False)

    def reduce_to(rank: int) -> tuple[Operator, Weights, Tensor, Tensor]:
        output = (left[..., :rank] * values[..., None, :rank]).to(taps)
        value = right[..., :rank, :].to(taps)
        wide, narrow = output.double(), value.double()
        rounding = gamma(rank + 1, UNIT_ROUNDOFF) * (wide.abs() @ narrow.abs())
        weights = Weights(value.flatten(1, 2), output.flatten(1, 2), basis.weights.bias, basis.weights.groups)
        return basis.operators, weights, (wide @ narrow).flatten(1, 2), rounding.flatten(1, 2)

    return reduce_to


def fewer_terms(basis: Basis, taps: Tensor) -> Smaller:
    """The terms with the largest matrices, in their order."""
    order = taps.double().abs().sum((1, 2)).argsort(descending=True)

    def reduce_to(count: int) -> tuple[Operator, Weights, Tensor, Tensor]:
        kept = order[:count].sort().values
        rebuilt = torch.zeros_like(taps, dtype=torch.float64).index_copy(0, kept, taps.double()[kept])
        if isinstance(basis.operators, Shift):
            operators: Operator = Shift(tuple(basis.operators.offsets[k] for k in kept.tolist()))
        else:
            choice = torch.zeros(count, len(taps)).to(taps)
            choice = choice.index_put((torch.arange(count), kept), torch.ones(()).to(taps))
            operators = Combination(choice.to(basis.weights.like.device), basis.operators)
        weights = Weights(None, taps[kept], basis.weights.bias, basis.weights.groups)
        return operators, weights, rebuilt, torch.zeros_like(rebuilt)

    return reduce_to


REDUCTIONS = {"rank": lower_rank, "terms": fewer_terms}
