"""Shifts: the operators of a convolution."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from conv2attn.errors import GeometryError
from conv2attn.theory.basis.grid import AttentionGrid, Offset, Sides, Sites
from conv2attn.theory.basis.operator import Operator, apply, as_matrix, combine, offsets, output_sides, terms
from conv2attn.theory.basis.padding import Padding


@final
@dataclass(frozen=True)
class Shift(Operator):
    """In term k, query q reads key q + offsets[k] and nothing else; it reads zero if that key is off the grid."""

    offsets: tuple[Offset, ...]


@offsets.register
def _(operator: Shift) -> tuple[Offset, ...]:
    return operator.offsets


@terms.register
def _(operator: Shift) -> int:
    return len(operator.offsets)


@output_sides.register
def _(operator: Shift, sides: Sides) -> Sides:
    if any(len(offset) != len(sides) for offset in operator.offsets):
        raise GeometryError(
            "C2A122",
            f"shifts by {operator.offsets} do not fit a grid with sides {sides}",
            "Pass offsets with one whole number for each axis of the grid.",
        )
    return sides


@as_matrix.register
def _(operator: Shift, sides: Sides) -> Tensor:
    grid = AttentionGrid(sides, Sites.everywhere(len(sides)))
    return torch.stack([grid.squared_distance(offset) == 0 for offset in operator.offsets]).double()


@apply.register
def _(operator: Shift, image: Tensor, sides: Sides) -> Tensor:
    output_sides(operator, sides)
    return torch.stack([shifted(image, offset, sides) for offset in operator.offsets])


@combine.register
def _(operator: Shift, images: Tensor, sides: Sides) -> Tensor:
    output_sides(operator, sides)
    pairs = zip(images, operator.offsets, strict=True)
    return sum((shifted(image, offset, sides) for image, offset in pairs), images[0].new_zeros(()))


def shifted(image: Tensor, offset: Offset, sides: Sides) -> Tensor:
    """`image` (..., *sides) read at `query + offset`, zero beyond its borders."""
    # A negative offset pads zeros before the image and crops after it; a positive offset does the reverse. An offset
    # beyond the side leaves no pixel, and torch refuses a crop longer than the axis: hence the clamp.
    reach = tuple(max(-side, min(side, o)) for o, side in zip(offset, sides, strict=True))
    return Padding(tuple(-r for r in reach), reach).pad(image)


def causal_shifts(kernel_size: int, dilation: int = 1) -> Shift:
    """The shifts of a causal convolution of a sequence: token q reads ..., q - dilation, q, the oldest token first.

    Its weights are those of `torch.nn.Conv1d` after `dilation * (kernel_size - 1)` leading zeros.
    """
    return Shift(tuple((-dilation * back,) for back in reversed(range(kernel_size))))
