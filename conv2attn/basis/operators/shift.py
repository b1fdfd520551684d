"""Shifts: the operators of a convolution."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from conv2attn.basis.grid import AttentionGrid, Offset, Sides, Sites
from conv2attn.basis.operators.rules import apply, as_matrix, output_sides, terms
from conv2attn.basis.padding import Padding


@final
@dataclass(frozen=True)
class Shift:
    """In term k, query q reads key q + offsets[k] and nothing else; zero where that is off the grid."""

    offsets: tuple[Offset, ...]


@terms.register
def _(operator: Shift) -> int:
    return len(operator.offsets)


@output_sides.register
def _(operator: Shift, sides: Sides) -> Sides:
    return sides


@as_matrix.register
def _(operator: Shift, sides: Sides) -> Tensor:
    grid = AttentionGrid(sides, Sites.everywhere(len(sides)))
    return torch.stack([grid.squared_distance(offset) == 0 for offset in operator.offsets]).double()


@apply.register
def _(operator: Shift, image: Tensor, sides: Sides) -> Tensor:
    return torch.stack([shifted(image, offset, sides) for offset in operator.offsets])


def shifted(image: Tensor, offset: Offset, sides: Sides) -> Tensor:
    """`image` (..., *sides) read at `query + offset`, zero beyond its borders."""
    reach = tuple(max(-side, min(side, o)) for o, side in zip(offset, sides, strict=True))
    return Padding(tuple(-r for r in reach), reach).pad(image)
