"""Relative positional encodings: the vectors r_delta of Eq. (8) and, for each head, what their scores peak at.

The v of Eq. (8) enters only through `W_hat_key^T v`, a vector of d_position numbers a head; an encoding holds it by
its meaning, a centre and a sharpness, so that scores are computed without the cancellation of the expanded form.
Its parameters never drop below float32: bfloat16 cannot count past 256.
"""

from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor, nn

from conv2attn.attention.displacements import additive_scores, displacement_rows
from conv2attn.attention.learned import LearnedEncoding
from conv2attn.basis import AttentionGrid


class HeadPositions(nn.Module):
    """A sharpness `alpha` (heads) and a centre in pixels (heads, axes), kept in float32 or float64."""

    d_position: int

    def __init__(self, centers: Tensor | Sequence[Sequence[float]], alpha: Tensor | Sequence[float] | float):
        super().__init__()
        center = torch.as_tensor(centers, dtype=None if isinstance(centers, Tensor) else torch.float32)
        sharpness = torch.as_tensor(alpha, dtype=center.dtype, device=center.device)
        self.center = nn.Parameter(center.detach().clone())
        self.alpha = nn.Parameter(sharpness.detach().expand(len(center)).clone())

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.center.shape[0]

    @property
    def dimensions(self) -> int:
        """Number of axes of the grid."""
        return self.center.shape[1]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "HeadPositions":
        def no_lower(tensor: Tensor) -> Tensor:
            cast = fn(tensor)
            return cast if cast.dtype not in (torch.float16, torch.bfloat16) else tensor.float().to(cast.device)

        super()._apply(no_lower, recurse)
        return self

    def arguments(self) -> list[int]:
        """What, with a state dict, rebuilds it: heads and axes."""
        return [self.heads, self.dimensions]

    @classmethod
    def from_arguments(cls, arguments: Sequence[int]) -> Self:
        """An encoding of this shape, at zero."""
        return cls(torch.zeros(*arguments), 1.0)

    def extra_repr(self) -> str:
        """Heads, axes and the range of alpha."""
        low, high = self.alpha.min().item(), self.alpha.max().item()
        sharpness = f"{low:g}" if low == high else f"{low:g}..{high:g}"
        return f"heads={self.heads}, dimensions={self.dimensions}, alpha={sharpness}"


class QuadraticEncoding(HeadPositions):
    """`r_delta = (|delta|^2, delta)`, `v = -alpha (1, -2 center)`: scores are `-alpha |delta - center|^2` + const.

    Source: Cordonnier et al. 2020, Eq. (9); d_position = axes + 1.
    """

    @property
    def d_position(self) -> int:  # type: ignore[override]
        """Width of r_delta: one more than the number of axes."""
        return self.dimensions + 1

    def vectors(self, grid: AttentionGrid, rows: Tensor) -> Tensor:
        """`r_delta` for the queries `rows` against all keys: (queries, keys, d_position)."""
        delta = displacement_rows(grid, rows).to(self.center)
        return torch.cat([delta.square().sum(-1, keepdim=True), delta], -1)

    def position_bias(self, grid: AttentionGrid) -> Tensor:
        """`W_hat_key^T v` of each head: (heads, d_position); the same on every grid."""
        return -self.alpha[:, None] * torch.cat([torch.ones_like(self.alpha[:, None]), -2 * self.center], -1)

    def axis_scores(
        self, displacement: Tensor, axis: int, dtype: torch.dtype, heads: slice | list[int] = slice(None)
    ) -> Tensor:
        """What `axis` adds to the scores: `-alpha (displacement - center)^2`, (heads, *displacement.shape)."""
        away = displacement.to(self.center.device) - self.center[heads, axis, None, None].to(dtype)
        return -self.alpha[heads, None, None].to(dtype) * away.square()

    def scores(self, grid: AttentionGrid, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """`-alpha |displacement - center|^2` for the queries `rows`: (heads, queries, keys); 0 at an exact target."""
        return additive_scores(self, grid, rows, dtype)


class EnumeratedEncoding(HeadPositions):
    """`r_delta = (t, t^2)`, `v = alpha (2 t_center, -1)`: two dimensions serve any number of shifts.

    t is an injective integer function of the displacement; its radix grows with the run-time grid, and the score
    `-alpha (t - t_center)^2` is computed from int64. Disproves the conjecture d_position >= 3 of Cordonnier et al.
    2019 (arXiv v1); claim D2 of proofs/.
    """

    d_position = 2

    def radix(self, grid: AttentionGrid) -> list[int]:
        """Factors of the displacement's axes in t: each at least twice the range of all axes behind it."""
        radix = [1]
        for side in reversed(grid.keys[1:]):
            radix.insert(0, radix[0] * (2 * side - 1))
        return radix

    def enumeration(self, grid: AttentionGrid, rows: Tensor) -> Tensor:
        """t for the queries `rows` against all keys: int64, (queries, keys)."""
        return (displacement_rows(grid, rows) * torch.tensor(self.radix(grid))).sum(-1).to(self.center.device)

    def vectors(self, grid: AttentionGrid, rows: Tensor) -> Tensor:
        """`r_delta = (t, t^2)` for the queries `rows` against all keys: (queries, keys, 2)."""
        t = self.enumeration(grid, rows).to(self.center)
        return torch.stack([t, t.square()], -1)

    def position_bias(self, grid: AttentionGrid) -> Tensor:
        """`W_hat_key^T v` of each head on this grid: (heads, 2)."""
        t_center = self.center @ torch.tensor(self.radix(grid)).to(self.center)
        return self.alpha[:, None] * torch.stack([2 * t_center, -torch.ones_like(t_center)], -1)

    def scores(self, grid: AttentionGrid, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """`-alpha (t - t_center)^2` for the queries `rows`: (heads, queries, keys); 0 at an exact target."""
        t_center = self.center.double() @ torch.tensor(self.radix(grid), device=self.center.device).double()
        away = self.enumeration(grid, rows) - t_center[:, None, None]
        return (-self.alpha.double()[:, None, None] * away.square()).to(dtype)


Encoding = QuadraticEncoding | EnumeratedEncoding | LearnedEncoding
HARD_ENCODINGS: dict[str, type[QuadraticEncoding] | type[EnumeratedEncoding]] = {
    "quadratic": QuadraticEncoding,
    "enumerated": EnumeratedEncoding,
}
ENCODINGS = {**HARD_ENCODINGS, "learned": LearnedEncoding}
