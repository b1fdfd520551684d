"""Absolute positions, added to the tokens before the first layer: learned, or sinusoidal for grids of any size."""

import torch
from torch import Tensor, nn

from conv2attn.errors import GeometryError, HeadSizeError
from conv2attn.theory.basis import Sides
from conv2attn.theory.basis.operators.sinusoidal import sinusoids


class LearnedPlaces(nn.Module):
    """Adds to every token a learned vector of its position.

    Args:
        width: width of a token.
        sides: sides of the largest grid.
    Source: Radford et al. 2018; Devlin et al. 2019.
    """

    def __init__(self, width: int, sides: Sides):
        super().__init__()
        self.places = nn.Parameter(torch.randn(width, *sides) * 0.02)

    def forward(self, image: Tensor) -> Tensor:
        """(batch, width, *sides) to the same.

        Raises:
            GeometryError: the grid is larger than the learned one (C2A121).
        """
        sides, longest = image.shape[2:], self.places.shape[1:]
        if len(sides) != len(longest) or any(side > most for side, most in zip(sides, longest, strict=True)):
            raise GeometryError(
                "C2A121",
                f"places are learned for {tuple(longest)} tokens, not {tuple(sides)}",
                "Pass images of that size, or make the encoding with these sides.",
            )
        return image + self.places[(slice(None), *(slice(side) for side in sides))].to(image)


class SinusoidalPlaces(nn.Module):
    """Adds to every token sinusoids of its position, with an equal share of the channels for each axis.

    Args:
        width: width of a token; a multiple of twice the number of axes.
        dimensions: axes of the grid.
    Raises:
        HeadSizeError: the width is not a multiple (C2A105).
    Source: Vaswani et al. 2017, Sec. 3.5.
    """

    def __init__(self, width: int, dimensions: int):
        super().__init__()
        if width % (2 * dimensions) or width < 1:
            raise HeadSizeError(
                "C2A105",
                f"width={width} is not a positive multiple of {2 * dimensions}",
                "Pass a width that is a multiple of 2 for each axis.",
            )
        self.width, self.dimensions = width, dimensions

    def forward(self, image: Tensor) -> Tensor:
        """(batch, width, *sides) to the same."""
        share, added = self.width // self.dimensions, []
        for axis, side in enumerate(image.shape[2:]):
            vectors = sinusoids(torch.arange(side, device=image.device), share).mT
            shape = [share] + [side if a == axis else 1 for a in range(self.dimensions)]
            added.append(vectors.reshape(shape).expand(share, *image.shape[2:]))
        return image + torch.cat(added).to(image)

    def extra_repr(self) -> str:
        """Width and axes."""
        return f"width={self.width}, dimensions={self.dimensions}"
