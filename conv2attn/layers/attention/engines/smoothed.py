"""Heads of one sharpness whose centres form a lattice: the image is smoothed once, and then the heads are one-hot.

Head h of query q weighs keys by their distance from the point `q + center_h` alone, and all these points are pixels of
one smoothed image v: `y = sum_h M_h v[q + center_h] + b` is a convolution of v, at every alpha and at the border. So
the layer is one product of matrices per axis, and the convolution.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import final

import torch
from torch import Tensor

from conv2attn.layers.attention.engines import compiled
from conv2attn.layers.attention.engines.profiles import Crop, KeysRead, Profiles, Tiling, along, profiles_of
from conv2attn.layers.attention.recipe import Evaluation, Question
from conv2attn.layers.attention.storage import channels_are_last
from conv2attn.theory.basis import AttentionGrid, Basis, Padding, Sides, Sites


@final
@dataclass(frozen=True)
class Smoothing:
    """The points at which the image is smoothed, and the layer that reads them.

    Args:
        head: whose centre is the first of the lattice.
        points: the sites from which that head reads all points.
        queries: the sites on the grid of points.
        tilings: of the points, for each axis; one product where nothing is known of the grid.
    """

    head: int
    points: Sites
    queries: Sites
    tilings: tuple[Tiling, ...] | None


def decide_smoothed(question: Question) -> Evaluation | None:
    """The recipe for frozen heads that read one smoothed image."""
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
    grid, tilings = AttentionGrid(question.grid.keys, points, question.device), None
    if not question.traced:
        reading, crops = KeysRead.of(question, grid), crops_of(basis, question.shape[2:])
        tilings = tuple(reading.tiling(taps.order[:1], axis, crop) for axis, crop in enumerate(crops))
    smoothing = Smoothing(taps.order[0], points, queries, tilings)
    lattice = replace(taps, first=(0,) * axes, dilation=dilation)
    facts = replace(question.facts, targets=lattice.offsets, lattice=lattice)
    reader = replace(question, basis=read_by(smoothing, basis), facts=facts, shape=(*question.shape[:2], *grid.queries))
    read = compiled.decide(reader)
    assert not isinstance(read, str), read
    kept = None
    if question.keeps_profiles:
        with torch.no_grad():
            kept = smoothing_profiles(smoothing, basis, question.shape[2:], question.dtype, question.device)
    return partial(run_smoothed, smoothing=smoothing, kept=kept, read=read)


def read_by(smoothing: Smoothing, basis: Basis) -> Basis:
    """The layer on the grid of points."""
    return Basis(basis.operators, basis.weights, Padding.none(len(smoothing.queries.stride)), smoothing.queries)


def crops_of(basis: Basis, sides: Sides) -> list[Crop]:
    """For each axis the keys that are read: those of the image where the padding's zeros add nothing to a sum."""
    padding = basis.padding
    if padding.mode == "zeros" and min(padding.before + padding.after) >= 0 and max(padding.spacing) == 1:
        return [(before, before + side) for before, side in zip(padding.before, sides, strict=True)]
    return [(0, side) for side in padding.sides(tuple(sides))]


def keys_of(basis: Basis, image: Tensor) -> Tensor:
    """The keys that are read, as `crops_of` has them."""
    zeros = basis.padding.mode == "zeros" and min(basis.padding.before + basis.padding.after) >= 0
    return image if zeros and max(basis.padding.spacing) == 1 else basis.padding.pad(image)


def smoothing_profiles(
    smoothing: Smoothing, basis: Basis, sides: Sides, dtype: torch.dtype, device: torch.device
) -> list[Profiles]:
    """The weights of all points for images with these `sides`: (1, points, keys) for each axis and block."""
    grid = AttentionGrid(basis.padding.sides(tuple(sides)), smoothing.points, device)
    head, every_axis = slice(smoothing.head, smoothing.head + 1), []
    for axis, crop in enumerate(crops_of(basis, sides)):
        tiling = Tiling.whole(grid, axis) if smoothing.tilings is None else smoothing.tilings[axis]
        every_axis.append(profiles_of(basis.operators, grid, axis, tiling, head, dtype, crop))
    return every_axis


def run_smoothed(
    basis: Basis, image: Tensor, smoothing: Smoothing, kept: list[Profiles] | None, read: Evaluation
) -> Tensor:
    """The layer as one-hot heads on the smoothed image, which is stored as the image is."""
    sides = tuple(image.shape[2:])
    profiles = kept or smoothing_profiles(smoothing, basis, sides, image.dtype, image.device)
    keys, last = keys_of(basis, image), channels_are_last(image)
    keys, first = (keys.movedim(1, -1), 1) if last else (keys, 2)
    grid = AttentionGrid(basis.padding.sides(sides), smoothing.points)
    for axis, (weights, crop) in enumerate(zip(profiles, crops_of(basis, sides), strict=True)):
        tiling = Tiling.whole(grid, axis) if smoothing.tilings is None else smoothing.tilings[axis]
        keys = along(keys, first + axis, tiling, [each[0] for each in weights], crop)
    return read(read_by(smoothing, basis), keys.movedim(-1, 1) if last else keys)
