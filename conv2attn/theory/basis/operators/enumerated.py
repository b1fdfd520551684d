"""Heads that number all displacements, so two position dimensions serve any number of shifts (E5 of docs/errata.md)."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from conv2attn.theory.basis.grid import AttentionGrid
from conv2attn.theory.basis.numbers import widest
from conv2attn.theory.basis.operators.quadratic import Centered


@final
@dataclass(frozen=True, eq=False)
class EnumeratedSoftmax(Centered):
    """In head h, query q reads the softmax over all keys k of `-alpha[h] (t(k - q) - t(center[h]))^2`.

    `t` is an injective integer function of the displacement, whose radix grows with the grid. With `r_delta = (t, t^2)`
    and `v = alpha (2 t_center, -1)`, two dimensions serve any number of shifts, which disproves the conjecture
    `d_position >= 3` of Cordonnier et al. 2019, v1.
    """

    name: ClassVar[str] = "enumerated"
    d_position: ClassVar[int] = 2

    def enumeration(self, grid: AttentionGrid, queries: Tensor) -> Tensor:
        """t of the displacements from these queries to all keys: int64, (queries, keys)."""
        return numbered(grid.displacement_rows(queries), grid)

    def center_number(self, grid: AttentionGrid, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """t of every centre as two summands, both (heads): t of the nearest pixel, int64, and t of the remainder."""
        # t is linear, so the summands add up to t of the centre. The first stays an integer: on a large grid t exceeds
        # 2^24, and in float32 two keys would have the same t.
        nearest = self.center.detach().round()
        return numbered(nearest.long(), grid), numbered((self.center - nearest).to(dtype), grid)

    def scores(self, grid: AttentionGrid, queries: Tensor, dtype: torch.dtype, image: Tensor | None = None) -> Tensor:
        """`-alpha (t - t_center)^2`: (1, heads, queries, keys); 0 at an exact target.

        Computed in float64, or in `dtype` on a device without float64. Integers are subtracted before the conversion.
        """
        wide = widest(queries.device, dtype)
        whole, rest = self.center_number(grid, wide)
        away = (self.enumeration(grid, queries) - whole[:, None, None]).to(wide) - rest[:, None, None]
        return (-self.alpha.to(wide)[:, None, None] * away.square()).to(dtype)[None]

    def directed_scores(self, toward: Tensor, grid: AttentionGrid, queries: Tensor) -> Tensor:
        """`toward . r_delta` with `r_delta = (t, t^2)`, for toward (..., queries, 2): (..., queries, keys)."""
        t = self.enumeration(grid, queries).to(toward)
        return toward[..., :1] * t + toward[..., 1:] * t.square()


def numbered(displacements: Tensor, grid: AttentionGrid) -> Tensor:
    """t of displacements (..., axes)."""
    return torch.stack([f * x for f, x in zip(radix(grid), displacements.unbind(-1), strict=True)]).sum(0)


def radix(grid: AttentionGrid) -> list[int]:
    """The factor of each axis in t. A factor exceeds twice the largest |t| that the axes after it can reach."""
    # A displacement along an axis has 2 side - 1 values, so this is a number in a mixed radix, and t is injective.
    factors = [1]
    for side in reversed(grid.keys[1:]):
        factors.insert(0, factors[0] * (2 * side - 1))
    return factors
