"""Heads over learned relative positions: one vector for each shift along each axis."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from conv2attn.basis.grid import AttentionGrid
from conv2attn.basis.numbers import Numbers
from conv2attn.basis.operators.softmax import additive_scores
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

    def check(self, grid: AttentionGrid) -> None:
        """Whether the tables hold every shift of the grid.

        Raises:
            GeometryError: the grid has a larger one (C2A121).
        """
        for axis, table in enumerate(self.tables):
            reach, largest = table.shape[0] // 2, grid.longest_shift(axis)
            if largest > reach:
                raise GeometryError(
                    "C2A121",
                    f"axis {axis} has a shift of {largest}; positions are learned up to {reach}",
                    "Make the encoding larger with its method resized, or pass a smaller image.",
                )

    def axis_scores(
        self, displacement: Tensor, axis: int, dtype: torch.dtype, heads: list[int] | None = None
    ) -> Tensor:
        """The part of `axis` in the scores, (heads, *displacement.shape): each shift is scored once."""
        bias = self.bias[:, axis] if heads is None else self.bias[heads, axis]
        shifts = (displacement + self.tables[axis].shape[0] // 2).flatten()
        each = bias.to(dtype) @ self.tables[axis].to(dtype).mT
        return each.index_select(1, shifts).unflatten(1, displacement.shape)

    def scores(self, grid: AttentionGrid, queries: Tensor, dtype: torch.dtype, image: Tensor | None = None) -> Tensor:
        """`v . r_delta`: (1, heads, queries, keys)."""
        self.check(grid)
        parts = [
            self.axis_scores(grid.displacement(axis, index), axis, dtype)
            for axis, index in enumerate(grid.coordinates(queries))
        ]
        return additive_scores(parts)[None]

    def directed_scores(self, toward: Tensor, grid: AttentionGrid, queries: Tensor) -> Tensor:
        """`toward . r_delta`, for toward (..., queries, axes * width): (..., queries, keys)."""
        self.check(grid)
        parts = []
        for axis, index in enumerate(grid.coordinates(queries)):
            width, shifts = self.tables[axis].shape[1], grid.displacement(axis, index) + self.tables[axis].shape[0] // 2
            each = toward[..., axis * width : (axis + 1) * width] @ self.tables[axis].to(toward).mT
            parts.append(each.gather(-1, shifts.expand(*each.shape[:-1], -1)))
        return additive_scores(parts)
