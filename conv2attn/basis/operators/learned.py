"""Heads over learned relative positions: one vector for each shift along each axis."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from conv2attn.basis.grid import AttentionGrid, Sides
from conv2attn.basis.numbers import Numbers
from conv2attn.basis.operators.rules import apply, as_matrix, output_sides, terms
from conv2attn.basis.operators.softmax import additive_scores, whole_matrix
from conv2attn.errors import GeometryError


@final
@dataclass(frozen=True, eq=False)
class LearnedSoftmax:
    """In head h, query q reads the softmax over all keys k of `sum_a bias[h, a] . tables[a][(k - q)_a]`.

    Args:
        tables: for each axis a vector for every shift from `-reach` to `reach`, (2 reach + 1, width).
        bias: one vector per head and axis, (heads, axes, width).
    Source: Cordonnier et al. 2020, Sec. 4.3; Ramachandran et al. 2019.
    """

    tables: tuple[Tensor, ...]
    bias: Tensor

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.bias.shape[0]

    @property
    def values(self) -> tuple[Tensor, ...]:
        """None: every engine that serves these heads serves them for all values."""
        return ()

    def numbers(self) -> Numbers:
        """None: the scores are not distances."""
        return Numbers()

    def along(self, displacement: Tensor, axis: int, largest: int) -> Tensor:
        """The vectors of shifts along `axis`, none of which exceeds `largest`: (*displacement.shape, width).

        Raises:
            GeometryError: a shift beyond the table (C2A121).
        """
        reach = len(self.tables[axis]) // 2
        if largest > reach:
            raise GeometryError("C2A121", f"axis {axis} has a shift of {largest}; positions are learned up to {reach}")
        return self.tables[axis][displacement + reach]

    def axis_scores(self, grid: AttentionGrid, axis: int, dtype: torch.dtype, queries: Tensor | None = None) -> Tensor:
        """What `axis` adds to the scores of its `queries`, by default all: (heads, queries, keys of that axis)."""
        displacement = grid.displacement(axis, queries)
        vectors = self.along(displacement, axis, grid.longest_shift(axis)).to(dtype)
        toward = self.bias[:, axis].to(dtype) @ vectors.flatten(0, -2).mT
        return toward.unflatten(-1, displacement.shape)

    def scores(self, grid: AttentionGrid, queries: Tensor, dtype: torch.dtype, image: Tensor | None = None) -> Tensor:
        """`v . r_delta`: (1, heads, queries, keys)."""
        parts = [self.axis_scores(grid, axis, dtype, index) for axis, index in enumerate(grid.coordinates(queries))]
        return additive_scores(parts)[None]

    def vectors(self, grid: AttentionGrid, queries: Tensor) -> Tensor:
        """`r_delta`, the vectors of all axes side by side: (queries, keys, axes * width)."""
        displacement = grid.displacement_rows(queries)
        axes = range(len(self.tables))
        return torch.cat([self.along(displacement[..., a], a, grid.longest_shift(a)) for a in axes], -1)

    def position_bias(self, grid: AttentionGrid) -> Tensor:
        """`W_hat_key^T v` of each head: (heads, axes * width)."""
        return self.bias.flatten(1)


@terms.register
def _(operator: LearnedSoftmax) -> int:
    return operator.heads


@output_sides.register
def _(operator: LearnedSoftmax, sides: Sides) -> Sides:
    return sides


@as_matrix.register
def _(operator: LearnedSoftmax, sides: Sides) -> Tensor:
    return whole_matrix(operator, sides)


@apply.register
def _(operator: LearnedSoftmax, image: Tensor, sides: Sides) -> Tensor:
    mixed = torch.einsum("...k,tqk->t...q", image.flatten(-len(sides)), as_matrix(operator, sides).to(image))
    return mixed.unflatten(-1, sides)
