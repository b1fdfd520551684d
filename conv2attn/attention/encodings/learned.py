"""Learned relative positions: a vector for each shift along each axis, and larger tables made from smaller ones."""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from conv2attn.basis import LearnedSoftmax, Sides
from conv2attn.errors import UsageError


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

    def operators(self) -> LearnedSoftmax:
        """The softmax operators of the heads, over the live parameters."""
        return LearnedSoftmax(tuple(self.tables), self.bias)

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

    def resized(self, sides: Sides, how: str = "grow") -> Self:
        """An encoding for keys with these `sides`, made from this one.

        Args:
            sides: of the keys.
            how: "grow" gives shifts beyond the table the vector of the farthest one that it holds, so that attention on
                grids that fitted stays bitwise the same; "interpolate" stretches the table linearly, so that the
                vectors at the ends stay at the ends.
        Raises:
            UsageError: sides for other axes (C2A007), or another way (C2A002).
        """
        if len(sides) != self.dimensions or min(sides) < 1:
            raise UsageError("C2A007", f"sides={sides} is not a positive number for each of {self.dimensions} axes")
        if how not in ("grow", "interpolate"):
            raise UsageError("C2A002", f"how={how!r} is neither 'grow' nor 'interpolate'")
        reach = [max(1, side - 1) for side in sides]
        resize = grown if how == "grow" else stretched
        other = type(self)(self.heads, reach, self.width)
        other.tables = nn.ParameterList(resize(t.detach(), r) for t, r in zip(self.tables, reach, strict=True))
        other.bias = nn.Parameter(self.bias.detach().clone())
        return other


def grown(table: Tensor, reach: int) -> Tensor:
    """The vectors of shifts from `-reach` to `reach`; those beyond the table are the ones at its ends."""
    known = len(table) // 2
    shifts = torch.arange(-reach, reach + 1, device=table.device).clamp(-known, known)
    return table[shifts + known].clone()


def stretched(table: Tensor, reach: int) -> Tensor:
    """The table resampled linearly at `2 reach + 1` places from end to end."""
    return interpolate(table.mT[None], size=2 * reach + 1, mode="linear", align_corners=True)[0].mT.contiguous()
