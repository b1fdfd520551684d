"""Heads over sinusoidal relative positions: the vector of a shift is computed, for grids of any size."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self, final

import torch
from torch import Tensor

from conv2attn.errors import HeadSizeError
from conv2attn.theory.basis.grid import AttentionGrid
from conv2attn.theory.basis.operators.learned import LearnedSoftmax
from conv2attn.theory.basis.operators.softmax import Positions

PERIOD = 10_000.0


@final
@dataclass(frozen=True, eq=False)
class SinusoidalSoftmax(Positions):
    """In head h, query q reads the softmax over all keys k of `sum_a bias[h, a] . sinusoids((k - q)_a)`.

    These heads serve grids of any size. `r_delta` is the concatenation of the sinusoids of the axes.

    Args:
        bias: `W_hat_key^T v` per head and axis, (heads, axes, width); the width is even.
    Source: Dai et al. 2019 (Transformer-XL), applied to each axis.
    """

    name: ClassVar[str] = "sinusoidal"
    is_separable: ClassVar[bool] = True
    is_stationary: ClassVar[bool] = True

    bias: Tensor

    @classmethod
    def of(cls, heads: int, dimensions: int, width: int) -> Self:
        """Heads drawn at random, whose vector for an axis has `width` numbers.

        Raises:
            HeadSizeError: the width is odd (C2A105).
        """
        if width % 2 or width < 1:
            raise HeadSizeError(
                "C2A105",
                f"width={width} is not positive and even: sines and cosines come in pairs",
                "Pass a positive even width.",
            )
        return cls(torch.randn(heads, dimensions, width) * width**-0.5)

    @classmethod
    def of_sizes(cls, sizes: Sequence[int]) -> Self:
        """Random heads from `sizes`: the numbers of heads and axes, and the width."""
        return cls.of(*sizes)

    @property
    def by_head(self) -> Tensor:
        """The vectors of the heads."""
        return self.bias

    @property
    def d_position(self) -> int:
        """Width of r_delta: that of all axes together."""
        return self.dimensions * self.bias.shape[2]

    def on(self, grid: AttentionGrid) -> LearnedSoftmax:
        """These heads on one grid, as heads with tables that hold the vectors of all its shifts."""
        # On one grid the shifts are known, so the sinusoids are a table, and `LearnedSoftmax` computes the scores.
        width, tables = self.bias.shape[2], []
        for axis in range(self.bias.shape[1]):
            reach = grid.longest_shift(axis)
            shifts = torch.arange(-reach, reach + 1, device=self.bias.device)
            tables.append(sinusoids(shifts, width))
        return LearnedSoftmax(tuple(tables), self.bias)

    def directed_parts(self, toward: Tensor, grid: AttentionGrid, queries: Tensor | None = None) -> list[Tensor]:
        """For each axis, the part of `toward . r_delta`."""
        return self.on(grid).directed_parts(toward, grid, queries)

    def __str__(self) -> str:
        return f"{super().__str__()}, width={self.bias.shape[2]}"


def sinusoids(places: Tensor, width: int) -> Tensor:
    """`(sin(p w_i), cos(p w_i))` with `w_i = 10000^(-2 i / width)`: float64, (*places.shape, width), sines first.

    Source: Vaswani et al. 2017, Sec. 3.5; the order of Dai et al. 2019.
    """
    # float64: the angle of a shift p is rounded by p times the roundoff, which float32 would show on a long axis. Sines
    # come first, while Vaswani et al. interleave them.
    steps = torch.arange(0, width, 2, device=places.device, dtype=torch.float64)
    angles = places.double()[..., None] * torch.exp(-math.log(PERIOD) / width * steps)
    return torch.cat([angles.sin(), angles.cos()], -1)
