"""Which pixel the queries near the border read where their target is out of bounds: the nearest key, axis by axis.

Along one axis the pixel depends on how far the query is from either border. Farther from both than twice the largest
start, padding and room, it does not depend on the size any more, except for the remainder that a stride leaves at the
far end. So finitely many sizes show all pixels that can be read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from conv2attn.basis import Basis, Offset, Padding
from conv2attn.basis.padding import ZERO
from conv2attn.errors import GeometryError

NOTHING: Offset = ()


@final
@dataclass(frozen=True)
class Pattern:
    """The pixel, or `ZERO`, that each start reads for one query of one axis, in both layers."""

    ours: tuple[int, ...]
    theirs: tuple[int, ...]
    side: int
    query: int


def farthest(original: Basis, converted: Basis, starts: Sequence[Offset]) -> int:
    """The largest magnitude of all starts, paddings and rooms, in pixels."""
    amounts = [original.form.room, *starts]
    amounts += [amount for each in (original, converted) for amount in (each.padding.before, each.padding.after)]
    return max(abs(number) for amount in amounts for number in amount)


def patterns(original: Basis, converted: Basis, axis: int, starts: Sequence[int]) -> list[Pattern]:
    """Along one axis, every pattern of pixels that queries read on inputs of any side, with one example of each.

    Raises:
        GeometryError: a padding does not fit an input that the other layer takes.
    """
    form = original.form
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
        ours, theirs = (pixels_read(each.padding, axis, side, keys) for each in (original, converted))
        if ours is None:
            continue
        if theirs is None:
            raise GeometryError("C2A121", f"none of {converted.padding.mode} fits {side} pixels")
        for query, row in enumerate(np.concatenate([ours, theirs], 1).tolist()):
            found.setdefault(kind(row), Pattern(*halves(row, index.tolist()), side, query))
    return list(found.values())


def pixels_read(padding: Padding, axis: int, side: int, places: np.ndarray) -> np.ndarray | None:
    """The pixels that are read at `places`, counted from the first pixel, or None if the padding refuses the side."""
    try:
        source = padding.source(axis, side).numpy()
    except GeometryError:
        return None
    return source[np.clip(places + padding.before[axis], 0, len(source) - 1)] if len(source) else None


def kind(row: Sequence[int]) -> tuple[int, ...]:
    """Which of the numbers are equal, and which are `ZERO`: equal for queries that read the same pattern."""
    first: dict[int, int] = {ZERO: ZERO}
    return tuple(first.setdefault(pixel, len(first)) for pixel in row)


def halves(row: Sequence[int], index: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The pixels that either layer reads, per start, from a row with each place of the axis once per layer."""
    middle = len(row) // 2
    return tuple(row[i] for i in index), tuple(row[middle + i] for i in index)


def pixels(combination: Sequence[Pattern], which: str) -> list[Offset]:
    """The pixel that each start reads, `NOTHING` where that is zero along any axis."""
    along: Iterator[tuple[int, ...]] = zip(*(getattr(each, which) for each in combination), strict=True)
    return [NOTHING if ZERO in pixel else pixel for pixel in along]
