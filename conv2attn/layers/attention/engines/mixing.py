"""Mixes an image by one head: one product of matrices along each axis.

The windows that the tiles of an axis read are one strided view of a tensor's first axis, or of its last. So if axes are
tiled, the image is laid out as (first side, batch, channels, ..., last side), and no window is copied. The tiles of the
last axis stay a dimension of their own until the image is assembled.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor

from conv2attn.layers.attention.engines.profiles import Crop, KeysRead, Tiling, profiles_of
from conv2attn.layers.attention.recipe import Question
from conv2attn.theory.basis import AttentionGrid, Operator, Padding, Sides, Sites


class Windows(torch.autograd.Function):
    """`lines.unfold(dim, size, step)`: windows of `size` numbers along `dim`, one every `step` numbers.

    The gradient adds up overlapping windows by one strided sum per step within a window, for any number of windows. The
    gradient of torch's unfold visits every number separately, which took a fifth of a training step.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(lines: Tensor, dim: int, size: int, step: int) -> Tensor:
        """(..., side, ...) to (..., windows, ..., size): a view."""
        return lines.unfold(dim, size, step)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Saves the sizes, and no tensor."""
        lines, ctx.dim, ctx.size, ctx.step = inputs
        ctx.side = lines.shape[ctx.dim]

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        """The windows of the tangent."""
        return tangent.unfold(ctx.dim, ctx.size, ctx.step)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """The gradient of the lines, which is differentiable again."""
        return overlapped(gradients[0], ctx.dim, ctx.step, ctx.side), None, None, None


def overlapped(windows: Tensor, dim: int, step: int, side: int) -> Tensor:
    """The sum of windows, (..., windows, ..., size), each at its place on an axis of `side` numbers."""
    parts = windows.movedim(-1, dim + 1)  # (..., windows, size, ...)
    count, size = parts.shape[dim], parts.shape[dim + 1]
    blocks = count - 1 + -(-size // step)
    shape = (*parts.shape[:dim], max(blocks * step, side), *parts.shape[dim + 2 :])
    # Whole blocks of `step` numbers, so the end is cut off after the sum.
    total = parts.new_zeros(shape)
    places = total.narrow(dim, 0, blocks * step).unflatten(dim, (blocks, step))
    # The pieces of `step` numbers at `first` in every window are adjacent on the axis, from block first / step on. They
    # do not overlap, so one addition handles all windows.
    for first in range(0, size, step):
        part = parts.narrow(dim + 1, first, min(step, size - first))
        places.narrow(dim, first // step, count).narrow(dim + 1, 0, part.shape[dim + 1]).add_(part)
    return total.narrow(dim, 0, side)


Profiles = Sequence[Tensor]
"""For each axis, (tiles, queries, keys) for one head, or (heads, tiles, queries, keys) for several."""


@final
@dataclass(frozen=True, eq=False)
class Mixing:
    """How an image is mixed.

    Args:
        padding: padding of the image.
        grid: its keys, padding included, and the queries.
        crops: for each axis, the keys inside the image, if zeros of the padding can be skipped.
        tilings: tilings of the axes.
        depths: depths of the heads; see `profiles_of`.
    """

    padding: Padding
    grid: AttentionGrid
    crops: tuple[Crop, ...]
    tilings: tuple[Tiling, ...]
    depths: Tensor | None = None

    @classmethod
    def of(cls, question: Question, sites: Sites, heads: Sequence[int]) -> "Mixing":
        """Mixes in tiles along axes much longer than `heads` reach, except in a graph, whose images have any size."""
        padding, sides = question.basis.padding, tuple(question.shape[2:])
        grid, crops = AttentionGrid(padding.sides(sides), sites, question.device), crops_of(padding, sides)
        if question.traced:
            return cls(padding, grid, crops, tuple(Tiling.whole(grid, axis) for axis in range(len(sides))))
        reading = KeysRead.of(question, grid)
        tilings = tuple(reading.tiling(heads, axis, crop) for axis, crop in enumerate(crops))
        return cls(padding, grid, crops, tilings, reading.depths())

    def profiles(self, operators: Operator, heads: slice, dtype: torch.dtype) -> list[Tensor]:
        """The profiles of `heads`, (heads, tiles, queries, keys) for each axis."""
        axes = enumerate(zip(self.tilings, self.crops, strict=True))
        shape = [(axis, tiling, crop) for axis, (tiling, crop) in axes]
        return [
            profiles_of(operators, self.grid, axis, tiling, heads, dtype, crop, self.depths)
            for axis, tiling, crop in shape
        ]

    @property
    def in_tiles(self) -> bool:
        """Whether an axis has several tiles."""
        return any(tiling.count > 1 for tiling in self.tilings)

    def laid_out(self, image: Tensor, last: bool) -> Tensor:
        """The keys of an image in the layout of `mixed`; `last` says whether its channels are innermost."""
        keys = image if holds_all(self.padding) else self.padding.pad(image)
        if not self.in_tiles:
            return (keys.movedim(1, -1) if last else keys).contiguous()
        margins = [tiling.margins(crop) for tiling, crop in zip(self.tilings, self.crops, strict=True)]
        none = [(0, 0), (0, 0)]
        first, others = (margins[:1], margins[1:]) if len(margins) > 1 else ([], margins)
        zeros = [zeros for pair in reversed([*first, *none, *others]) for zeros in pair]
        return F.pad(keys.movedim(2, 0) if first else keys, zeros).contiguous()

    def mixed(self, lines: Tensor, profiles: Profiles, last: bool) -> Tensor:
        """The keys mixed by the profiles of one head: (batch, channels, tokens), or (tiles of batch and row, ...)."""
        if not self.in_tiles:
            for axis, weights in enumerate(profiles):
                lines = along(lines, axis + (1 if last else 2), weights[0])
            return lines.flatten(1, -2).mT if last else lines.flatten(2)
        for axis, (tiling, weights) in enumerate(zip(self.tilings[:-1], profiles[:-1], strict=True)):
            if axis:
                # Windows along the first axis are views of whole rows, so each axis is moved to the front in turn.
                lines = lines.movedim(2 + axis, 0).contiguous()
            keys: Any = Windows.apply(lines.flatten(1), 0, weights.shape[2], tiling.step)
            lines = weights.bmm(keys.mT).flatten(0, 1).unflatten(1, lines.shape[1:])
        keys = Windows.apply(lines.flatten(0, -2), 1, profiles[-1].shape[2], self.tilings[-1].step)
        return keys.transpose(0, 1).bmm(profiles[-1].mT).unflatten(1, (-1, lines.shape[-2])).flatten(0, 1)

    def image_of(self, tokens: Tensor, last: bool) -> Tensor:
        """The image, (batch, channels, *queries), from the tokens that `mixed` returns, with channels `last` or not."""
        *queries, end = self.grid.queries
        if not self.in_tiles:
            return tokens.unflatten(2, self.grid.queries)
        sides = [tiling.count * tiling.queries for tiling in self.tilings]
        axes, first = len(sides), 1 if last else 2
        blocks = tokens.unflatten(0, (self.tilings[-1].count, *reversed(sides[:-1]), -1))
        order = [axes, *range(axes - 1, 0, -1), 0, axes + 2]  # of (tiles, ..., first side, batch, channels, tokens)
        order.insert(len(order) if last else 1, axes + 1)
        image = blocks.permute(order)
        for axis, side in enumerate(queries):
            image = image.narrow(first + axis, 0, side)
        tiled = first + axes - 1
        # The tiles of the last axis are still a dimension: only the last tile has queries beyond the grid to drop.
        *tiles, last_tile = image.unbind(tiled)
        kept = end - len(tiles) * self.tilings[-1].queries
        image = torch.cat([*tiles, last_tile.narrow(tiled, 0, kept)], tiled)
        return image.movedim(-1, 1) if last else image


def along(image: Tensor, dim: int, weights: Tensor) -> Tensor:
    """Mixes axis `dim` of the row-major `image` by one product with `weights`, (queries, keys)."""
    lead, rest = image.shape[:dim], image.shape[dim + 1 :]
    lines = image.reshape(math.prod(lead), image.shape[dim], *([math.prod(rest)] if rest else []))
    return product(weights, lines).view(*lead, weights.shape[0], *rest)


def product(weights: Tensor, lines: Tensor) -> Tensor:
    """`weights`, (queries, keys), times each of `lines`, (lines, keys) or (lines, keys, rest)."""
    return lines @ weights.mT if lines.ndim == 2 else weights.expand(lines.shape[0], -1, -1).bmm(lines)


def holds_all(padding: Padding) -> bool:
    """Whether an image has all non-zero keys, in their order."""
    return padding.mode == "zeros" and min(padding.before + padding.after) >= 0 and max(padding.spacing) == 1


def crops_of(padding: Padding, sides: Sides) -> tuple[Crop, ...]:
    """For each axis the keys that are read: those of the image if zeros of the padding can be skipped."""
    if holds_all(padding):
        return tuple((before, before + side) for before, side in zip(padding.before, sides, strict=True))
    return tuple((0, side) for side in padding.sides(sides))
