"""Heads whose positions are numbers on a line: two position dimensions for any number of shifts (ERRATA E5)."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from conv2attn.theory.basis.grid import AttentionGrid
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
        """t for some queries against all keys: int64, (queries, keys)."""
        total = torch.zeros((), dtype=torch.int64, device=queries.device)
        for factor, part in zip(radix(grid), grid.displacement_rows(queries).unbind(-1), strict=True):
            total = total + factor * part
        return total

    def center_number(self, grid: AttentionGrid, dtype: torch.dtype) -> Tensor:
        """t of each centre, (heads)."""
        return torch.stack([f * x for f, x in zip(radix(grid), self.center.to(dtype).unbind(-1), strict=True)]).sum(0)

    def scores(self, grid: AttentionGrid, queries: Tensor, dtype: torch.dtype, image: Tensor | None = None) -> Tensor:
        """`-alpha (t - t_center)^2`, formed in float64: (1, heads, queries, keys); 0 at an exact target."""
        away = self.enumeration(grid, queries) - self.center_number(grid, torch.float64)[:, None, None]
        return (-self.alpha.double()[:, None, None] * away.square()).to(dtype)[None]

    def directed_scores(self, toward: Tensor, grid: AttentionGrid, queries: Tensor) -> Tensor:
        """`toward . r_delta` with `r_delta = (t, t^2)`, for toward (..., queries, 2): (..., queries, keys)."""
        t = self.enumeration(grid, queries).to(toward)
        return toward[..., :1] * t + toward[..., 1:] * t.square()


def radix(grid: AttentionGrid) -> list[int]:
    """Factors of the displacement's axes in t: each at least twice the range of all axes behind it."""
    factors = [1]
    for side in reversed(grid.keys[1:]):
        factors.insert(0, factors[0] * (2 * side - 1))
    return factors
