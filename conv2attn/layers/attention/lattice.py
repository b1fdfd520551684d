"""Offsets that fill a lattice are the taps of a kernel."""

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import final

from conv2attn.theory.basis import Offset
from conv2attn.theory.basis.numbers import Center


@final
@dataclass(frozen=True)
class Lattice:
    """Offsets that are `first + dilation * t` for all taps t of a kernel.

    `order` lists the heads row-major, and `in_order` says whether they are so already.
    """

    first: Offset
    dilation: Offset
    kernel_size: Offset
    order: tuple[int, ...]
    in_order: bool

    @property
    def offsets(self) -> tuple[Offset, ...]:
        """The offset of each head."""
        axes = zip(self.first, self.dilation, self.kernel_size, strict=True)
        points = itertools.product(*([first + d * t for t in range(size)] for first, d, size in axes))
        return tuple(point for _, point in sorted(zip(self.order, points, strict=True)))


@lru_cache(maxsize=1024)
def lattice(offsets: tuple[Offset, ...]) -> Lattice | None:
    """The lattice that the offsets fill, each point once and in any order, or None."""
    axes = [sorted(set(axis)) for axis in zip(*offsets, strict=True)]
    dilation = tuple(axis[1] - axis[0] if len(axis) > 1 else 1 for axis in axes)
    even = all(axis == [axis[0] + d * t for t in range(len(axis))] for axis, d in zip(axes, dilation, strict=True))
    if not even or len(set(offsets)) != len(offsets) or math.prod(map(len, axes)) != len(offsets):
        return None
    order = tuple(sorted(range(len(offsets)), key=offsets.__getitem__))
    in_order = order == tuple(range(len(order)))
    return Lattice(tuple(axis[0] for axis in axes), dilation, tuple(map(len, axes)), order, in_order)


def taps_of_heads(centers: tuple[Center, ...], alphas: tuple[float, ...]) -> Lattice | None:
    """The lattice of the centres, relative to the first head's, if they form one and all heads have one alpha."""
    if len(set(alphas)) != 1 or not all(map(math.isfinite, (*alphas, *(x for c in centers for x in c)))):
        return None
    apart = [[x - origin for x, origin in zip(center, centers[0], strict=True)] for center in centers]
    if not all(x.is_integer() for each in apart for x in each):
        return None
    return lattice(tuple(tuple(map(int, each)) for each in apart))
