"""The channel product that ends every engine: all heads in one matrix product."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from conv2attn.theory.basis import Basis, Operator, Weights


def project(mixed: Tensor, weights: Weights, direct: bool) -> Tensor:
    """`sum_h mixed_h W_val^h W_out^h + b` for mixed (batch, d_in, heads, *queries): (batch, d_out, *queries).

    A convolution whose kernel is one token is this product, groups and bias included, and measured up to twice as fast
    as torch.matmul on a CPU.

    Args:
        direct: whether the device computes such a convolution as a plain sum of products.
    """
    if weights.value is not None and weights.output is not None and cheaper_in_turn(mixed, weights):
        mixed, weights = in_heads(mixed, weights), replace(weights, value=None)
    columns, matrix = mixed.flatten(1, 2).flatten(2), weights.taps().permute(1, 2, 0).flatten(1)
    if direct and weights.groups == 1:
        kernel, one, none = matrix[:, :, None], (1,), (0,)
        return torch.convolution(columns, kernel, weights.bias, one, none, one, False, none, 1).unflatten(
            2, mixed.shape[3:]
        )
    grouped = matrix.unflatten(0, (weights.groups, -1)) @ columns.unflatten(1, (weights.groups, -1))
    result = grouped.flatten(1, 2) if weights.bias is None else grouped.flatten(1, 2) + weights.bias[:, None]
    return result.unflatten(2, mixed.shape[3:])


def cheaper_in_turn(mixed: Tensor, weights: Weights) -> bool:
    """Whether applying value and output in turn costs less than forming their products, as for few tokens.

    Only if heads are no wider than their inputs, so that sums have no more terms than with products; and not in half
    precision, which would round in between.
    """
    if torch.compiler.is_compiling() or mixed.dtype not in (torch.float32, torch.float64):
        return False
    d_in, d_head, d_out = (size // weights.groups for size in (weights.d_in, weights.d_head, weights.d_out))
    # In turn: tokens d_head (d_in + d_out) products. At once: d_in d_out d_head to form the matrix, d_in d_out for each
    # token.
    tokens = mixed.shape[0] * math.prod(mixed.shape[3:])
    return d_head <= d_in and tokens * d_head * (d_in + d_out) < d_in * d_out * (d_head + tokens)


def in_heads(mixed: Tensor, weights: Weights) -> Tensor:
    """`W_val^h x_h` for mixed (batch, d_in, heads, *queries): (batch, d_head, heads, *queries)."""
    assert weights.value is not None
    groups = weights.value.unflatten(1, (weights.groups, -1)), mixed.unflatten(1, (weights.groups, -1)).flatten(4)
    return torch.einsum("hgki,bgihn->bgkhn", *groups).flatten(1, 2).unflatten(3, mixed.shape[3:])


def with_flat_positions(result: Tensor, operators: Operator) -> Tensor:
    """`result`, through which trained centres and sharpness receive the gradient of one-hot attention: exactly 0."""
    if not torch.is_grad_enabled():
        return result
    # A constant result would have no gradient at all, and an optimiser distinguishes None from 0.
    positions = [value for value in operators.values if value.requires_grad]
    return result if not positions else result + torch.stack([(p * 0).sum() for p in positions]).sum().to(result.dtype)


def joined(pieces: list[Tensor], dim: int) -> Tensor:
    """The pieces as one tensor, copied only if there are several."""
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim)


def rows_per_slab(basis: Basis, shape: tuple[int, ...], itemsize: int, heads: int, limit: int) -> int:
    """The number of query rows that keeps the mixed tokens of all heads under `limit` bytes; at least one."""
    queries = basis.sites.count(basis.padding.sides(tuple(shape[2:])))
    row = itemsize * shape[0] * shape[1] * heads
    for side in queries[1:]:
        row *= side
    return max(1, limit // max(1, row))
