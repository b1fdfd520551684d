"""Rules of functions of whole rows and images: oracles of all numbers along some axes, in their order.

An example: each number of a picture that is made twice as large is an oracle of "upsample_bilinear2d" with its
settings, of all pixels of its channel, and of its own place. So equal pictures give equal numbers, and nothing else is
known of them.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch

from conv2attn.equality.fingerprint.formulas import MOST_COMPARED, keyed_hashes, oracle
from conv2attn.equality.fingerprint.residues import Residues
from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.rules.call import Call, rule


def ordered_hash(c: Call, numbers: Residues, axes: Sequence[int]) -> Residues:
    """One hash of all numbers along some axes and of their places, with axes of one number in their stead.

    Raises:
        Undecided: some are not finite, or there are too many.
    """
    c.field.usable(numbers, c.base)
    along = sorted(axis % len(numbers.shape) for axis in axes)
    sides = [side if axis in along else 1 for axis, side in enumerate(numbers.shape)]
    if math.prod(sides) > MOST_COMPARED:
        raise Undecided(f"{c.base} of so many")
    places = c.field.encode(torch.arange(math.prod(sides)).reshape(sides))
    hashes = keyed_hashes(c.field, f"in order, of sides {[sides[axis] for axis in along]}", numbers, places)
    return Residues(hashes.sum([axis - len(numbers.shape) for axis in along], True) if along else hashes)


def places_of(c: Call, shape: Sequence[int]) -> Residues:
    """The place of each number of a result."""
    return c.field.encode(torch.arange(math.prod(shape)).reshape(tuple(shape)))


@rule("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d")
def _(
    c: Call,
    self: Any,
    output_size: Any,
    align_corners: bool,
    scales: Any = None,
    scales_h: Any = None,
    scales_w: Any = None,
    scales_d: Any = None,
) -> Residues:
    image, size = c.operand(self), tuple(output_size)
    name = f"{c.base} to {size}, {align_corners}, {scales}, {scales_d}, {scales_h}, {scales_w}"
    return oracle(c.field, name, ordered_hash(c, image, range(-len(size), 0)), places_of(c, size), finite=True)


@rule("grid_sampler_2d", "grid_sampler_3d")
def _(c: Call, input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Residues:
    image, points = c.operand(input), c.operand(grid)
    c.field.usable(points, c.base)
    axes = len(image.shape) - 2
    around = ordered_hash(c, image, range(-axes, 0))
    coordinates = [points.but(values=points.values[..., axis].unsqueeze(2)) for axis in range(axes)]
    name = f"{c.base} {interpolation_mode}, {padding_mode}, {align_corners}"
    return oracle(c.field, name, around, *coordinates, finite=True)


@rule("argmax", "argmin")
def _(c: Call, self: Any, dim: Any = None, keepdim: bool = False) -> Residues:
    numbers = c.numbers.operand(self, self.dtype)
    if dim is None or not numbers.shape:
        numbers, dim = numbers.laid((math.prod(numbers.shape),)), 0
    found = oracle(c.field, c.base, ordered_hash(c, numbers, [dim]), finite=True)
    return found.laid(tuple(c.outs[0].shape))
