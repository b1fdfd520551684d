"""Padding as an explicit linear map before the keys: each padded position copies one pixel, or is zero."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from conv2attn.errors import GeometryError, UsageError
from conv2attn.theory.basis.grid import Sides
from conv2attn.theory.basis.operator import Operator

ZERO = -1


@final
@dataclass(frozen=True)
class Mode:
    """How the positions beyond the pixels of an axis are filled.

    Args:
        pixel: a function of places on an axis (0 is the first pixel) and of its side, which returns the pixels that are
            copied to these places; None for zeros.
        short: the amount on either end is at most the side of the axis minus this; None if any amount is possible.
        padder: the name of torch.nn's padding layers, without its ending such as `2d`; empty if torch lacks the mode.
    """

    pixel: Callable[[Tensor, int], Tensor] | None = None
    short: int | None = None
    padder: str = ""

    def least_side(self, amount: int) -> int:
        """The fewest pixels of an axis that is padded by `amount` on one end."""
        return 1 if self.short is None else max(1, amount + self.short)

    def layer(self, axes: int) -> Any:
        """The class of torch.nn that pads this many axes."""
        return getattr(nn, f"{self.padder}{axes}d")

    def most(self, side: int) -> float:
        """The largest amount on one end of an axis."""
        return math.inf if self.short is None else side - self.short


# Reflection at 0 is |p|. With p' = side - 1 - |p|, reflection at the last pixel is |p'|, counted from that pixel. One
# reflection at either end is enough, since `short` keeps the amount below the side.
MODES = {
    "zeros": Mode(padder="ConstantPad"),
    "reflect": Mode(lambda place, side: (side - 1) - ((side - 1) - place.abs()).abs(), 1, "ReflectionPad"),
    "replicate": Mode(lambda place, side: place.clamp(0, side - 1), padder="ReplicationPad"),
    "circular": Mode(lambda place, side: place % side, 0, "CircularPad"),
}
"""All padding modes, by the value of torch's `padding_mode`."""


@final
@dataclass(frozen=True)
class Padding(Operator):
    """Moves pixel `i` to `before + i * spacing`, and fills the other positions by the mode; a negative amount crops.

    A `spacing` above 1 stuffs zeros between the pixels: a transposed convolution is a convolution of such an image.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    mode: str = "zeros"
    spacing: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.spacing:
            object.__setattr__(self, "spacing", (1,) * len(self.before))
        if self.mode not in MODES:
            raise UsageError(
                "C2A104",
                f"padding_mode={self.mode!r} is not one of {', '.join(MODES)}",
                "Set padding_mode to one of them, or leave the layer unconverted with --skip.",
            )
        if self.mode != "zeros" and max(self.spacing) > 1:
            raise UsageError(
                "C2A104",
                f"padding_mode={self.mode!r} of a zero-stuffed grid has no meaning",
                "Use padding_mode='zeros', as transposed convolutions have it.",
            )

    @staticmethod
    def none(dimensions: int) -> "Padding":
        """No padding."""
        return Padding((0,) * dimensions, (0,) * dimensions)

    @property
    def is_identity(self) -> bool:
        """Whether the padded image is the image itself."""
        return not any(self.before) and not any(self.after) and max(self.spacing) == 1

    def extended(self, extra: Sequence[int]) -> "Padding":
        """This padding with `extra` more positions at the end of each axis."""
        return replace(self, after=tuple(a + e for a, e in zip(self.after, extra, strict=True)))

    def sides(self, sides: Sides) -> Sides:
        """Sides of the padded grid."""
        return tuple(
            (n - 1) * s + 1 + b + a for n, s, b, a in zip(sides, self.spacing, self.before, self.after, strict=True)
        )

    def source(self, axis: int, side: int, device: torch.device | str = "cpu") -> Tensor:
        """For each padded position along `axis`, the pixel it copies, or `ZERO`: int64.

        Raises:
            GeometryError: the mode needs more pixels than the axis has (C2A121).
        """
        before, spacing, mode = self.before[axis], self.spacing[axis], MODES[self.mode]
        self.check(axis, side)
        place = torch.arange(self.sides((side,) * len(self.before))[axis], device=device) - before
        if mode.pixel is not None:
            return mode.pixel(place, side)
        # No zeros are stuffed after the last pixel, so the pixels end at (side - 1) * spacing.
        inside = (place >= 0) & (place < (side - 1) * spacing + 1) & (place % spacing == 0)
        return torch.where(inside, place // spacing, ZERO)

    def check(self, axis: int, side: int) -> None:
        """Raises GeometryError (C2A121) if the mode needs more pixels than an axis of this side has."""
        before, after = self.before[axis], self.after[axis]
        if not torch.compiler.is_compiling() and (side < 1 or max(before, after) > MODES[self.mode].most(side)):
            raise GeometryError(
                "C2A121",
                f"{self.mode} padding by ({before}, {after}) needs a longer axis than {side} pixels",
                "Pass a larger input or less padding.",
            )

    def pad(self, image: Tensor) -> Tensor:
        """Pads an image, whose last axes are the grid, by `torch.nn.functional.pad`, as torch's convolutions do.

        Only a mode that torch lacks gathers the pixels instead.

        Raises:
            GeometryError: the mode needs more pixels than an axis has (C2A121).
        """
        first, after = image.ndim - len(self.before), list(self.after)
        if self.mode != "zeros":
            return self.repeated(image, first)
        for axis, s in enumerate(self.spacing):
            if s > 1:  # s - 1 zeros after each pixel: a size that torch.export can reason about
                behind = [0, 0] * (len(after) - 1 - axis) + [0, s - 1]
                # A new axis holds the zeros after each pixel, and is then merged into the axis of the pixels. The last
                # pixel has s - 1 zeros after it too, so the padding after it is shorter by as many.
                image = F.pad(image.unsqueeze(first + axis + 1), behind).flatten(first + axis, first + axis + 1)
                after[axis] -= s - 1
        amounts = innermost_first(self.before, after)
        return F.pad(image, amounts) if any(amounts) else image

    def repeated(self, image: Tensor, first: int) -> Tensor:
        """Repeats pixels around the grid, which is the axes from `first` on; negative amounts then crop."""
        if not MODES[self.mode].padder:
            for axis, side in enumerate(image.shape[first:]):
                image = image.index_select(first + axis, self.source(axis, side, image.device))
            return image
        for axis, side in enumerate(image.shape[first:]):
            self.check(axis, side)
        # These modes of `F.pad` accept (batch, channels, *sides) only.
        batched = image if first == 2 else image.reshape(1, -1, *image.shape[first:])
        amounts = innermost_first(self.before, self.after)
        padded = F.pad(batched, [max(0, amount) for amount in amounts], self.mode)
        # The crop comes last, since the pixels to repeat are those of the whole image.
        padded = F.pad(padded, [min(0, amount) for amount in amounts]) if min(amounts) < 0 else padded
        return padded if first == 2 else padded.reshape(*image.shape[:first], *padded.shape[2:])


def innermost_first(before: Sequence[int], after: Sequence[int]) -> list[int]:
    """Amounts of padding in the order of torch.nn.functional.pad: the last axis first."""
    return [x for pair in zip(reversed(before), reversed(after), strict=True) for x in pair]
