"""Heads of one sharpness whose centres form a lattice: the image is smoothed once, and then convolved.

Head h of query q weighs keys by their distance from the point `q + center_h` alone, and all these points are pixels of
one smoothed image v: `y = sum_h M_h v[q + center_h] + b` is a convolution of v, at every alpha and at the border.
"""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from conv2attn.attention.engines.convolution import plainly_stored
from conv2attn.attention.engines.profiles import Block, weights_of
from conv2attn.attention.engines.separable_plan import COLUMNS, ROWS, SLAB, reading_of, whole
from conv2attn.attention.lattice import Lattice
from conv2attn.attention.recipe import Question
from conv2attn.basis import AttentionGrid, Basis, Sides, Sites

Bands = list[list[tuple[int, Tensor]]]
"""For each axis and block of points, the first pixel that is read and the weights: (points, pixels), or (pixels,
points) for the last axis."""


@final
@dataclass(frozen=True)
class Smoothing:
    """The points at which the image is smoothed, and the convolution of the smoothed image.

    Args:
        taps: of the convolution, whose first is at the offset 0 from its head.
        points: the sites from which that head reads all points.
        stride, dilation: in points.
        blocks: of points for each axis; one that reads all keys where nothing is known of the grid.
        crops: whether padding is left out: its zeros add nothing to a sum.
        images: how many at once; all where it is None.
    """

    taps: Lattice
    points: Sites
    stride: Sides
    dilation: Sides
    blocks: tuple[tuple[Block, ...], ...] | None
    crops: bool
    images: int | None


def smoothing_for(question: Question) -> Smoothing | None:
    """The smoothing for frozen heads that have one alpha and centres on a lattice, on a device with plain convolutions.

    Not on three axes, where torch's convolution writes the pixels of all taps first, nor beyond the memory limit.
    """
    basis, known = question.basis, question.known
    if question.free or question.trained or known.indirect is not None or len(basis.sites.stride) > 2:
        return None
    taps = known.taps
    if taps is None or not basis.operators.is_stationary:
        return None
    steps = [
        math.gcd(s, d) if k > 1 else s
        for s, d, k in zip(basis.sites.stride, taps.dilation, taps.kernel_size, strict=True)
    ]
    spans = [d * (k - 1) for d, k in zip(taps.dilation, taps.kernel_size, strict=True)]
    after = tuple(a - span for a, span in zip(basis.sites.after, spans, strict=True))
    points = Sites(tuple(steps), basis.sites.before, after)
    stride = tuple(s // step for s, step in zip(basis.sites.stride, steps, strict=True))
    dilation = tuple(max(1, d // step) for d, step in zip(taps.dilation, steps, strict=True))
    crops = basis.padding.mode == "zeros" and min(basis.padding.before + basis.padding.after) >= 0
    crops = crops and max(basis.padding.spacing) == 1
    if question.traced:
        return Smoothing(taps, points, stride, dilation, None, crops, None)
    grid = AttentionGrid(question.grid.keys, points, question.device)
    image = 3 * question.dtype.itemsize * question.shape[1] * math.prod(map(max, grid.keys, grid.queries))
    if image > question.memory_limit:
        return None
    reading, last = reading_of(question, grid), len(steps) - 1
    blocks = tuple(reading.blocks(taps.order[:1], axis, COLUMNS if axis == last else ROWS) for axis in range(last + 1))
    images = max(1, min(SLAB, question.memory_limit) // image)
    return Smoothing(taps, points, stride, dilation, blocks, crops, images if images < question.shape[0] else None)


def bands_of(
    smoothing: Smoothing, basis: Basis, sides: Sides, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> Bands:
    """The weights of all points for images with these `sides`."""
    keys = basis.padding.sides(tuple(sides))
    grid = AttentionGrid(keys, smoothing.points, device)
    operators, head, found = basis.operators.on(grid), smoothing.taps.order[:1], []
    for axis, side in enumerate(sides if smoothing.crops else keys):
        begin = basis.padding.before[axis] if smoothing.crops else 0
        bands = []
        for block in (whole(grid, axis),) if smoothing.blocks is None else smoothing.blocks[axis]:
            (weights,) = weights_of(operators, grid, axis, head, block.shape(grid, axis), dtype)
            first, last = (begin, begin + side) if smoothing.blocks is None else within(block, begin, begin + side)
            weights = weights.narrow(1, first - block.first, last - first)
            bands.append((first - begin, weights.mT if axis == len(keys) - 1 else weights))
        found.append(bands)
    return found


def within(block: Block, begin: int, end: int) -> tuple[int, int]:
    """The keys of the block from `begin` to `end`; none where it reads only zeros of the padding."""
    first = min(max(block.first, begin), end, block.last)
    return first, max(first, min(block.last, end))


def run_smoothed(basis: Basis, image: Tensor, smoothing: Smoothing, kept: Bands | None) -> Tensor:
    """The layer as a convolution of the smoothed image."""
    bands = kept or bands_of(smoothing, basis, image.shape[2:], image.dtype, image.device)
    keys = image if smoothing.crops else basis.padding.pad(image)
    kernel = plainly_stored(basis.weights.kernel(smoothing.taps.kernel_size, order_of(smoothing.taps)))
    none = (0,) * len(bands)
    parts = [
        torch.convolution(
            plainly_stored(smoothed(part, bands)),
            kernel,
            basis.weights.bias,
            smoothing.stride,
            none,
            smoothing.dilation,
            False,
            none,
            basis.weights.groups,
        )
        for part in ([keys] if smoothing.images is None else keys.split(smoothing.images))
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def order_of(taps: Lattice) -> tuple[int, ...] | None:
    """The order of the heads, or None if they are in it."""
    return None if taps.in_order else taps.order


def smoothed(keys: Tensor, bands: Bands) -> Tensor:
    """The image at all points, (batch, d_in, *points): one axis after the other."""
    *others, last = bands
    for axis, each in enumerate(others, 2):
        lines = keys.flatten(axis + 1).flatten(0, axis - 1)
        rows = [weights.expand(lines.shape[0], -1, -1) @ lines.narrow(1, at, weights.shape[1]) for at, weights in each]
        mixed = rows[0] if len(rows) == 1 else torch.cat(rows, 1)
        keys = mixed.view(*keys.shape[:axis], mixed.shape[1], *keys.shape[axis + 1 :])
    lines = keys.flatten(0, -2)
    columns = [lines.narrow(1, at, weights.shape[0]) @ weights for at, weights in last]
    mixed = columns[0] if len(columns) == 1 else torch.cat(columns, 1)
    return mixed.view(*keys.shape[:-1], mixed.shape[1])
