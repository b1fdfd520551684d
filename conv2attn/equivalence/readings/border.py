"""What the queries of a grid read near its border, where targets are beyond the keys: the nearest key, one axis each.

Along one axis a pixel is a function of how far the query is from either border; beyond the largest start, padding and
room twice over from both, nothing depends on the size any more, but for the remainder that a stride leaves at the far
end. So finitely many sizes show all that can be read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from conv2attn.basis import Offset, Padding, Sides
from conv2attn.basis.padding import ZERO
from conv2attn.equivalence.readings.reading import Reading
from conv2attn.errors import GeometryError

NOTHING: Offset = ()


@final
@dataclass(frozen=True)
class Pattern:
    """What each start reads for one query of one axis, in both layers: a pixel, or `ZERO`."""

    ours: tuple[int, ...]
    theirs: tuple[int, ...]
    side: int
    query: int


def farthest(original: Reading, converted: Reading, starts: Sequence[Offset]) -> int:
    """By how much starts, paddings and rooms reach out, at most."""
    amounts = [original.geometry.room, *starts]
    amounts += [amount for each in (original, converted) for amount in (each.padding.before, each.padding.after)]
    return max(abs(number) for amount in amounts for number in amount)


def patterns(original: Reading, converted: Reading, axis: int, starts: Sequence[int]) -> list[Pattern]:
    """Along one axis, all that queries read on inputs of any side; one example of each kind.

    Raises:
        GeometryError: a padding does not fit an input that the other layer takes.
    """
    form = original.geometry
    reach, stride, spacing = (
        farthest(original, converted, [(s,) for s in starts]),
        form.stride[axis],
        form.spacing[axis],
    )
    places, index = np.unique(np.array(starts, dtype=np.int64), return_inverse=True)
    found: dict[tuple[int, ...], Pattern] = {}
    for side in range(1, 8 * (reach + 1) // spacing + 2 * stride * spacing + 4):
        count = (spacing * (side - 1) + form.room[axis]) // stride + 1
        if count < 1:
            continue
        keys = places[None] + stride * np.arange(count)[:, None]
        ours, theirs = (read(each.padding, axis, side, keys) for each in (original, converted))
        if ours is None:
            continue
        if theirs is None:
            raise GeometryError("C2A121", f"none of {converted.padding.mode} fits {side} pixels")
        for query, row in enumerate(np.concatenate([ours, theirs], 1).tolist()):
            found.setdefault(kind(row), Pattern(*halves(row, index.tolist()), side, query))
    return list(found.values())


def read(padding: Padding, axis: int, side: int, places: np.ndarray) -> np.ndarray | None:
    """The pixels that copies of `places`, counted from the first pixel, come from, or None if the side does not fit."""
    try:
        source = padding.source(axis, side).numpy()
    except GeometryError:
        return None
    return source[np.clip(places + padding.before[axis], 0, len(source) - 1)] if len(source) else None


def kind(row: Sequence[int]) -> tuple[int, ...]:
    """Which of the numbers are the same, and which are `ZERO`: alike for queries that read alike."""
    first: dict[int, int] = {ZERO: ZERO}
    return tuple(first.setdefault(pixel, len(first)) for pixel in row)


def halves(row: Sequence[int], index: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What both layers read, start by start, of a row that holds each place of the axis once for each layer."""
    middle = len(row) // 2
    return tuple(row[i] for i in index), tuple(row[middle + i] for i in index)


def pixels(combination: Sequence[Pattern], which: str) -> list[Offset]:
    """The pixel that each start reads, `NOTHING` where that is zero along any axis."""
    along: Iterator[tuple[int, ...]] = zip(*(getattr(each, which) for each in combination), strict=True)
    return [NOTHING if ZERO in pixel else pixel for pixel in along]


def nearest(reading: Reading, sides: Sides, at: Offset, start: Offset) -> Offset:
    """The pixel that a query at `at`, counted from the first pixel, reads through `start`."""
    padding = reading.padding
    keys = padding.sides(sides)
    target = [s + x + before for s, x, before in zip(start, at, padding.before, strict=True)]
    if reading.positions and reading.positions.by_enumeration:
        radix = [int(np.prod([2 * side - 1 for side in keys[axis + 1 :]])) for axis in range(len(keys))]
        away = sum(
            np.arange(side).reshape([-1 if axis == other else 1 for other in range(len(keys))]) * r - r * x
            for axis, (side, r, x) in enumerate(zip(keys, radix, target, strict=True))
        )
        target = [int(x) for x in np.unravel_index(np.abs(away).argmin(), keys)]
    clipped = [min(max(x, 0), side - 1) for x, side in zip(target, keys, strict=True)]
    pixel = tuple(int(padding.source(a, side)[x]) for a, (side, x) in enumerate(zip(sides, clipped, strict=True)))
    return NOTHING if ZERO in pixel else pixel
