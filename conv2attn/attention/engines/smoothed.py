"""Heads of one sharpness whose centres form a lattice: the image is smoothed once, and then the heads are one-hot.

Head h of query q weighs keys by their distance from the point `q + center_h` alone, and all these points are pixels of
one smoothed image v: `y = sum_h M_h v[q + center_h] + b` is a convolution of v, at every alpha and at the border.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import final

import torch
from torch import Tensor

from conv2attn.attention.engines import compiled
from conv2attn.attention.engines.channels import joined
from conv2attn.attention.engines.compiled import plainly_stored
from conv2attn.attention.engines.profiles import (
    COLUMN_QUERIES,
    ROW_QUERIES,
    SLAB,
    Block,
    KeysRead,
    profiles_of,
    whole_axis,
)
from conv2attn.attention.recipe import Evaluation, Question
from conv2attn.basis import AttentionGrid, Basis, Padding, Sides, Sites

Bands = list[list[tuple[int, Tensor]]]
"""For each axis and block of points, the first pixel that is read and the weights: (points, pixels), or (pixels,
points) for the last axis."""


@final
@dataclass(frozen=True)
class Smoothing:
    """The points at which the image is smoothed, and the layer that reads them.

    Args:
        head: whose centre is the first of the lattice.
        points: the sites from which that head reads all points.
        queries: the sites on the grid of points.
        blocks: of points for each axis; one that reads all keys where nothing is known of the grid.
        crops: whether padding is left out: its zeros add nothing to a sum.
        images: how many at once; all where it is None.
    """

    head: int
    points: Sites
    queries: Sites
    blocks: tuple[tuple[Block, ...], ...] | None
    crops: bool
    images: int | None


def decide_smoothed(question: Question) -> Evaluation | None:
    """The recipe for frozen heads that read one smoothed image, within the memory limit."""
    basis, taps = question.basis, question.facts.taps
    if not question.is_smoothed or taps is None:
        return None
    axes, sites = len(basis.sites.stride), basis.sites
    steps = tuple(
        math.gcd(s, d) if k > 1 else s for s, d, k in zip(sites.stride, taps.dilation, taps.kernel_size, strict=True)
    )
    spans = [d * (k - 1) for d, k in zip(taps.dilation, taps.kernel_size, strict=True)]
    points = Sites(steps, sites.before, tuple(a - span for a, span in zip(sites.after, spans, strict=True)))
    dilation = tuple(max(1, d // step) for d, step in zip(taps.dilation, steps, strict=True))
    behind = tuple(d * (k - 1) for d, k in zip(dilation, taps.kernel_size, strict=True))
    stride = tuple(s // step for s, step in zip(sites.stride, steps, strict=True))
    queries = Sites(stride, (0,) * axes, behind)
    crops = basis.padding.mode == "zeros" and min(basis.padding.before + basis.padding.after) >= 0
    crops = crops and max(basis.padding.spacing) == 1
    grid = AttentionGrid(question.grid.keys, points, question.device)
    blocks = images = None
    if not question.traced:
        image = 3 * question.dtype.itemsize * question.shape[1] * math.prod(map(max, grid.keys, grid.queries))
        if image > question.memory_limit:
            return None
        sizes = [*[ROW_QUERIES] * (axes - 1), COLUMN_QUERIES]
        reading = KeysRead.of(question, grid)
        blocks = tuple(reading.blocks(taps.order[:1], axis, size) for axis, size in enumerate(sizes))
        images = max(1, min(SLAB, question.memory_limit) // image)
        images = images if images < question.shape[0] else None
    smoothing = Smoothing(taps.order[0], points, queries, blocks, crops, images)
    lattice = replace(taps, first=(0,) * axes, dilation=dilation)
    facts = replace(question.facts, targets=lattice.offsets, lattice=lattice)
    reader = replace(question, basis=read_by(smoothing, basis), facts=facts, shape=(*question.shape[:2], *grid.queries))
    read = compiled.decide(reader)
    assert not isinstance(read, str), read
    bands = None
    if question.keeps_profiles:
        with torch.no_grad():
            bands = bands_of(smoothing, basis, question.shape[2:], question.dtype, question.device)
    return partial(run_smoothed, smoothing=smoothing, kept=bands, read=read)


def read_by(smoothing: Smoothing, basis: Basis) -> Basis:
    """The layer on the grid of points."""
    return Basis(basis.operators, basis.weights, Padding.none(len(smoothing.queries.stride)), smoothing.queries)


def bands_of(
    smoothing: Smoothing, basis: Basis, sides: Sides, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> Bands:
    """The weights of all points for images with these `sides`."""
    keys = basis.padding.sides(tuple(sides))
    grid, every_axis = AttentionGrid(keys, smoothing.points, device), []
    for axis, side in enumerate(sides if smoothing.crops else keys):
        begin = basis.padding.before[axis] if smoothing.crops else 0
        blocks = (whole_axis(grid, axis),) if smoothing.blocks is None else smoothing.blocks[axis]
        bands = []
        for block, (weights,) in zip(
            blocks, profiles_of(basis.operators, grid, axis, [smoothing.head], blocks, dtype), strict=True
        ):
            skipped, at, count = (begin, 0, side) if smoothing.blocks is None else within(block, begin, begin + side)
            weights = weights.narrow(1, skipped, count)
            bands.append((at, weights.mT if axis == len(keys) - 1 else weights))
        every_axis.append(bands)
    return every_axis


def within(block: Block, begin: int, end: int) -> tuple[int, int, int]:
    """The numbers of the first key that the block reads between `begin` and `end`: among its own, and among these.

    Then how many it reads: none, and no number, where all its keys are zeros of the padding.
    """
    first = max(block.first, begin)
    count = min(block.last, end) - first
    return (first - block.first, first - begin, count) if count > 0 else (0, 0, 0)


def run_smoothed(basis: Basis, image: Tensor, smoothing: Smoothing, kept: Bands | None, read: Evaluation) -> Tensor:
    """The layer as one-hot heads on the smoothed image."""
    bands = kept or bands_of(smoothing, basis, image.shape[2:], image.dtype, image.device)
    keys = image if smoothing.crops else basis.padding.pad(image)
    layer = read_by(smoothing, basis)
    images = [keys] if smoothing.images is None else keys.split(smoothing.images)
    return joined([read(layer, plainly_stored(smoothed(part, bands))) for part in images], 0)


def smoothed(keys: Tensor, bands: Bands) -> Tensor:
    """The image at all points, (batch, d_in, *points): one axis after the other."""
    *others, last = bands
    for axis, each in enumerate(others, 2):
        lines = keys.flatten(axis + 1).flatten(0, axis - 1)
        rows = [weights.expand(lines.shape[0], -1, -1) @ lines.narrow(1, at, weights.shape[1]) for at, weights in each]
        mixed = joined(rows, 1)
        keys = mixed.view(*keys.shape[:axis], mixed.shape[1], *keys.shape[axis + 1 :])
    lines = keys.flatten(0, -2)
    columns = [lines.narrow(1, at, weights.shape[0]) @ weights for at, weights in last]
    mixed = joined(columns, 1)
    return mixed.view(*keys.shape[:-1], mixed.shape[1])
