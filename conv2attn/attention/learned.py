"""Learned relative positions: a vector for each shift along each axis (Cordonnier et al. 2020, Sec. 4.3)."""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from conv2attn.attention.displacements import additive_scores, displacement_rows
from conv2attn.basis import AttentionGrid
from conv2attn.errors import GeometryError


class LearnedEncoding(nn.Module):
    """`r_delta` is the concatenation of one learned vector an axis, found by the shift along it; v one vector a head.

    The scores `v . r_delta` are a sum over the axes, so the softmax over a box is an outer product. The tables are
    shared by all heads.

    Args:
        heads: number of heads.
        reach: the largest shift along each axis; sides of the keys may be one more.
        width: numbers in the vector of one axis; d_position is that times the axes.
    Source: Cordonnier et al. 2020, Sec. 4.3; Ramachandran et al. 2019.
    """

    def __init__(self, heads: int, reach: Sequence[int], width: int):
        super().__init__()
        self.heads, self.reach, self.width = heads, tuple(reach), width
        self.tables = nn.ParameterList(torch.randn(2 * r + 1, width) * width**-0.5 for r in reach)
        self.bias = nn.Parameter(torch.randn(heads, len(self.reach), width))

    @property
    def dimensions(self) -> int:
        """Number of axes of the grid."""
        return len(self.reach)

    @property
    def d_position(self) -> int:
        """Width of r_delta."""
        return self.dimensions * self.width

    def along(self, displacement: Tensor, axis: int) -> Tensor:
        """The vectors of shifts along `axis`: (*displacement.shape, width).

        Raises:
            GeometryError: a shift beyond the table (C2A121).
        """
        largest = int(displacement.abs().max()) if displacement.numel() else 0
        if largest > self.reach[axis]:
            raise GeometryError(
                "C2A121", f"axis {axis} has a shift of {largest}; positions are learned up to {self.reach[axis]}"
            )
        return self.tables[axis][displacement.to(self.bias.device) + self.reach[axis]]

    def vectors(self, grid: AttentionGrid, rows: Tensor) -> Tensor:
        """`r_delta` for the queries `rows` against all keys: (queries, keys, d_position)."""
        displacement = displacement_rows(grid, rows)
        return torch.cat([self.along(displacement[..., axis], axis) for axis in range(self.dimensions)], -1)

    def position_bias(self, grid: AttentionGrid) -> Tensor:
        """`W_hat_key^T v` of each head: (heads, d_position); the same on every grid."""
        return self.bias.flatten(1)

    def axis_scores(
        self, displacement: Tensor, axis: int, dtype: torch.dtype, heads: slice | list[int] = slice(None)
    ) -> Tensor:
        """What `axis` adds to the scores: (heads, *displacement.shape)."""
        toward = self.bias[heads, axis].to(dtype) @ self.along(displacement, axis).to(dtype).flatten(0, -2).mT
        return toward.unflatten(-1, displacement.shape)

    def scores(self, grid: AttentionGrid, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """`v . r_delta` for the queries `rows`: (heads, queries, keys)."""
        return additive_scores(self, grid, rows, dtype)

    def arguments(self) -> list[int]:
        """What, with a state dict, rebuilds it: heads, width, and the reach of each axis."""
        return [self.heads, self.width, *self.reach]

    @classmethod
    def from_arguments(cls, arguments: Sequence[int]) -> Self:
        """An encoding of this shape."""
        heads, width, *reach = arguments
        return cls(heads, reach, width)

    def extra_repr(self) -> str:
        """Heads, reach and width."""
        return f"heads={self.heads}, reach={self.reach}, width={self.width}"
