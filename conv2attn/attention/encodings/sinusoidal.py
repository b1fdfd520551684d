"""Sinusoidal relative positions (Transformer-XL), an axis at a time: nothing is stored but a vector per head."""

from collections.abc import Sequence
from typing import Self

import torch
from torch import nn

from conv2attn.basis import SinusoidalSoftmax
from conv2attn.errors import HeadSizeError


class SinusoidalEncoding(nn.Module):
    """`r_delta` is the concatenation of the sinusoids of the shift along each axis; v one learned vector per head.

    It serves grids of any size.

    Args:
        heads: number of heads.
        dimensions: axes of the grid.
        width: numbers in the vector of one axis; even.
    Raises:
        HeadSizeError: the width is odd (C2A105).
    Source: Dai et al. 2019, Sec. 3.3; Vaswani et al. 2017, Sec. 3.5.
    """

    def __init__(self, heads: int, dimensions: int, width: int):
        super().__init__()
        if width % 2 or width < 2:
            raise HeadSizeError("C2A105", f"width={width} is not positive and even: sines and cosines come in pairs")
        self.bias = nn.Parameter(torch.randn(heads, dimensions, width) * width**-0.5)

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.bias.shape[0]

    @property
    def dimensions(self) -> int:
        """Number of axes of the grid."""
        return self.bias.shape[1]

    @property
    def width(self) -> int:
        """Numbers in the vector of one axis."""
        return self.bias.shape[2]

    @property
    def d_position(self) -> int:
        """Width of r_delta."""
        return self.dimensions * self.width

    def operators(self) -> SinusoidalSoftmax:
        """The softmax operators of the heads, over the live parameters."""
        return SinusoidalSoftmax(self.bias)

    def arguments(self) -> list[int]:
        """What, with a state dict, rebuilds it: heads, axes and width."""
        return [self.heads, self.dimensions, self.width]

    @classmethod
    def from_arguments(cls, arguments: Sequence[int]) -> Self:
        """An encoding of this shape."""
        return cls(*arguments)

    def extra_repr(self) -> str:
        """Heads, axes and width."""
        return f"heads={self.heads}, dimensions={self.dimensions}, width={self.width}"
