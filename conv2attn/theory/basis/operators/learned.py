"""Heads over learned relative positions: one vector for each shift along each axis."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self, final

import torch
from torch import Tensor

from conv2attn.errors import GeometryError
from conv2attn.theory.basis.grid import AttentionGrid
from conv2attn.theory.basis.operators.softmax import Positions


@final
@dataclass(frozen=True, eq=False)
class LearnedSoftmax(Positions):
    """In head h, query q reads the softmax over all keys k of `sum_a bias[h, a] . tables[a][(k - q)_a]`.

    The tables are shared by all heads; `r_delta` is the concatenation of the vectors of the axes.

    Args:
        tables: one per axis, with a vector for every shift from `-reach` to `reach`, (2 reach + 1, width).
        bias: one vector per head and axis, (heads, axes, width).
    Source: Cordonnier et al. 2020, Sec. 4.3; Ramachandran et al. 2019.
    """

    name: ClassVar[str] = "learned"
    shared: ClassVar[frozenset[str]] = frozenset({"tables"})
    is_separable: ClassVar[bool] = True
    is_stationary: ClassVar[bool] = True

    tables: tuple[Tensor, ...]  # one per axis, (2 reach + 1, width)
    bias: Tensor  # (heads, axes, width)

    @classmethod
    def of(cls, heads: int, reach: Sequence[int], width: int) -> Self:
        """Heads drawn at random for shifts of up to `reach` along each axis, so for sides of up to `reach + 1`."""
        tables = tuple(torch.randn(2 * r + 1, width) * width**-0.5 for r in reach)
        return cls(tables, torch.randn(heads, len(tables), width))

    @classmethod
    def of_sizes(cls, sizes: Sequence[int]) -> Self:
        """Random heads from `sizes`: the number of heads, the width, and the reach of each axis."""
        heads, width, *reach = sizes
        return cls.of(heads, reach, width)

    @property
    def sizes(self) -> list[int]:
        """Heads, width, and the reach of each axis."""
        return [self.heads, self.bias.shape[2], *self.reach]

    @property
    def reach(self) -> tuple[int, ...]:
        """The largest shift along each axis."""
        return tuple(table.shape[0] // 2 for table in self.tables)

    @property
    def by_head(self) -> Tensor:
        """The vectors of the heads."""
        return self.bias

    @property
    def d_position(self) -> int:
        """Width of r_delta: that of all axes together."""
        return self.dimensions * self.bias.shape[2]

    def on(self, grid: AttentionGrid) -> Self:
        """These heads, after a check that their tables hold every shift of the grid.

        Raises:
            GeometryError: the grid has a shift beyond the tables (C2A121).
        """
        for axis, reach in enumerate(self.reach):
            largest = grid.longest_shift(axis)
            if largest > reach:
                raise GeometryError(
                    "C2A121",
                    f"axis {axis} has a shift of {largest}; positions are learned up to {reach}",
                    "Pass a smaller image, or make an encoding for larger sides.",
                )
        return self

    def axis_scores(self, displacement: Tensor, axis: int, dtype: torch.dtype, heads: slice = slice(None)) -> Tensor:
        """What `axis` adds to the scores; every shift is scored once."""
        bias = self.bias[heads, axis]
        shifts = (displacement + self.tables[axis].shape[0] // 2).flatten()
        # 2 side - 1 inner products per axis, instead of one per pair of a query and a key.
        shift_scores = bias.to(dtype) @ self.tables[axis].to(dtype).mT
        return shift_scores.index_select(1, shifts).unflatten(1, displacement.shape)

    def directed_parts(self, toward: Tensor, grid: AttentionGrid, queries: Tensor | None = None) -> list[Tensor]:
        """The part of each axis in `toward . r_delta`, (..., queries, keys of that axis).

        Args:
            toward: (..., queries, axes * width).
            queries: row-major numbers; by default all queries.
        """
        self.on(grid)
        parts = []
        for axis, index in enumerate(grid.coordinates(grid.every_query() if queries is None else queries)):
            width, shifts = self.tables[axis].shape[1], grid.displacement(axis, index) + self.tables[axis].shape[0] // 2
            shift_scores = toward[..., axis * width : (axis + 1) * width] @ self.tables[axis].to(toward).mT
            # A query needs one inner product per shift of the table, not one per key: a key gathers the score of its
            # shift.
            parts.append(shift_scores.gather(-1, shifts.expand(*shift_scores.shape[:-1], -1)))
        return parts

    def __str__(self) -> str:
        return f"{self.name}, heads={self.heads}, reach={self.reach}, width={self.bias.shape[2]}"
