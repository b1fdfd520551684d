"""Which heads are translates of one pattern, hence what kind of convolution a layer reads as."""

from dataclasses import dataclass
from itertools import pairwise, product
from math import prod
from typing import final

import numpy as np

from conv2attn.basis import Offset
from conv2attn.span.conditions.problem import Array, AttentionRows
from conv2attn.span.measures import masses

LEAST_RELATIVE = 0.5
"""Share of the energy that displacement explains from which heads are read as convolutions: half of what they do."""


@final
@dataclass(frozen=True)
class Pattern:
    """Heads whose mean attention is one pattern, moved by `shifts` from that of the first of them."""

    heads: tuple[int, ...]
    shifts: tuple[Offset, ...]

    @property
    def kernel(self) -> bool:
        """Whether the shifts fill a box, as those of a kernel do."""
        axes = [sorted(set(along)) for along in zip(*self.shifts, strict=True)]
        even = all(len({b - a for a, b in pairwise(axis)}) <= 1 for axis in axes)
        return even and set(product(*axes)) == set(self.shifts) and len(self.shifts) == prod(map(len, axes))


@final
@dataclass(frozen=True)
class Profiles:
    """The patterns of a layer, most heads first, and how it reads: one convolution, a sparse one, or a mixture.

    `relative` is the share of the heads' centred energy that their mean by displacement explains, the least of all
    heads. Below `LEAST_RELATIVE` the layer does not read as any convolution.
    """

    patterns: tuple[Pattern, ...]
    relative: float

    @property
    def reads_as(self) -> str:
        """One pattern moved by the shifts of a kernel is one convolution (of the image seen through the pattern)."""
        if self.relative < LEAST_RELATIVE:
            return "not relative to position"
        if len(self.patterns) > 1:
            return f"a mixture of {len(self.patterns)} convolutions"
        return "one convolution" if self.patterns[0].kernel else "one sparse convolution"


def sort_into_patterns(attention: AttentionRows, tolerance: float) -> Profiles:
    """The heads sorted into patterns, from their mean attention by displacement.

    Two heads have one pattern if, moved by the difference of their peaks, they differ by at most `tolerance` of their
    mass on the displacements that both have. Five percent tells a neighbour's softmax from a translate's.
    """
    seen = masses(attention)
    means = np.divide(seen.mass, seen.having, out=np.zeros_like(seen.mass), where=seen.having > 0)
    mass = means / means.sum(tuple(range(1, means.ndim)), keepdims=True)
    peaks = [np.array(np.unravel_index(int(each.argmax()), each.shape)) for each in seen.mass]
    groups: list[list[tuple[int, Offset]]] = []
    for head, peak in enumerate(peaks):
        for group in groups:
            first = group[0][0]
            shift = tuple(int(x) for x in peak - peaks[first])
            if difference(mass[first], mass[head], shift) <= tolerance:
                group.append((head, shift))
                break
        else:
            groups.append([(head, (0,) * len(peak))])
    groups.sort(key=len, reverse=True)
    return Profiles(
        tuple(Pattern(tuple(h for h, _ in group), tuple(s for _, s in group)) for group in groups),
        float(seen.shares[0].min()),
    )


def difference(first: Array, second: Array, shift: Offset) -> float:
    """Half the sum of |first moved by shift - second| where both are, over the larger of their masses there."""
    ours = tuple(slice(max(0, -s), side - max(0, s)) for s, side in zip(shift, first.shape, strict=True))
    theirs = tuple(slice(max(0, s), side - max(0, -s)) for s, side in zip(shift, first.shape, strict=True))
    a, b = first[ours], second[theirs]
    mass = max(a.sum(), b.sum())
    return float(np.abs(a - b).sum() / (2 * mass)) if mass > 0 else 1.0
