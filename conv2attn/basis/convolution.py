"""The one data structure: a basis of token mixings, a channel matrix for each, and a bias."""

import math
from dataclasses import dataclass
from functools import singledispatch
from typing import final

import torch
from torch import Tensor

from conv2attn.basis.grid import Sides
from conv2attn.basis.operators import Operator, apply, as_matrix, output_sides
from conv2attn.errors import UnsupportedError


@final
@dataclass(frozen=True, eq=False)
class BasisConvolution:
    """`y = sum_k P_k x M_k^T + b` (Andreoli 2019, Eq. 8).

    Args:
        operators: the `P_k`, all from one grid to one grid.
        weights: the `M_k`, (terms, d_out, d_in / groups); group g of the outputs reads group g of the inputs.
        bias: (d_out), or (d_out, *queries) where a composition made it a field over the queries, or None.
        groups: number of diagonal blocks of each `M_k`.
    """

    operators: tuple[Operator, ...]
    weights: Tensor
    bias: Tensor | None = None
    groups: int = 1

    @property
    def d_in(self) -> int:
        """Number of input channels."""
        return self.weights.shape[2] * self.groups

    @property
    def d_out(self) -> int:
        """Number of output channels."""
        return self.weights.shape[1]

    def dense_weights(self) -> Tensor:
        """The `M_k` with their zero blocks, (terms, d_out, d_in)."""
        blocks = self.weights.unflatten(1, (self.groups, -1))
        return torch.stack([torch.block_diag(*matrix) for matrix in blocks])


@singledispatch
def as_basis(layer: object) -> BasisConvolution:
    """Reads a linear layer as a basis convolution: a convolution's `P_k` are shifts, an attention's are softmaxes."""
    raise UnsupportedError("C2A101", f"{type(layer).__name__} has no reading as a basis convolution")


def evaluate(basis: BasisConvolution, image: Tensor) -> Tensor:
    """`sum_k P_k x M_k^T + b` for image (batch, d_in, *sides), term by term: the definition, not the fast way."""
    sides = tuple(image.shape[2:])
    total: Tensor | float = 0.0
    for operator, weight in zip(basis.operators, basis.weights, strict=True):
        mixed = apply(operator, image, sides).unflatten(1, (basis.groups, -1))
        total = total + torch.einsum("bgi...,goi->bgo...", mixed, weight.unflatten(0, (basis.groups, -1)))
    assert isinstance(total, Tensor)
    return total.flatten(1, 2) + field(basis, sides)


def field(basis: BasisConvolution, sides: Sides) -> Tensor:
    """The bias as a field (d_out, *queries), or one that broadcasts to it."""
    queries = output_sides(basis.operators[0], sides)
    if basis.bias is None:
        return basis.weights.new_zeros(basis.d_out, *[1] * len(queries))
    return basis.bias if basis.bias.ndim > 1 else basis.bias.reshape(-1, *[1] * len(queries))


def as_affine_map(basis: BasisConvolution, sides: Sides) -> tuple[Tensor, Tensor]:
    """The whole map at one size, float64: matrix (d_out * queries, d_in * keys) and vector (d_out * queries)."""
    matrices = torch.stack([as_matrix(operator, sides) for operator in basis.operators])
    whole = torch.einsum("toi,tqk->oqik", basis.dense_weights().double(), matrices)
    queries = output_sides(basis.operators[0], sides)
    bias = field(basis, sides).double().expand(basis.d_out, *queries)
    return whole.reshape(basis.d_out * math.prod(queries), -1), bias.reshape(-1)
