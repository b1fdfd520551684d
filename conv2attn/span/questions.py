"""Questions about the heads of one layer: which shift each is, which of them are needed, what they are together."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise, product
from math import prod
from typing import Any, final

import numpy as np

from conv2attn.basis import Offset
from conv2attn.span.attention_rows import Array, limits_for
from conv2attn.span.equations import shift_targets
from conv2attn.span.graded_facts.measures import shares
from conv2attn.span.graded_facts.sums import Sums, sums_of
from conv2attn.span.least_squares import NEGLIGIBLE
from conv2attn.span.reading import rows_of

LEAST_RELATIVE = 0.5
"""Share of the energy that displacement explains from which heads are read as convolutions: half of what they do."""


@final
@dataclass(frozen=True)
class HeadReading:
    """One head over all its queries, each weighed alike, in pixels.

    `center` and `spread` are the mean displacement of its attention to pixels and the root mean square distance from
    it; `peak` is the displacement with the most attention, `share` that attention over all queries, and `weakest` the
    least of a query that has the peak on the grid. `offset` is the peak if most queries have it, and every such query
    reads it and at most eps of anything else.
    """

    head: int
    center: tuple[float, ...]
    spread: float
    peak: Offset
    share: float
    weakest: float
    offset: Offset | None


def head_offsets(
    attention: Any, *, grid: Sequence[int] | int | None = None, extra_tokens: int = 0, eps: float | None = None
) -> tuple[HeadReading, ...]:
    """For each head its centre, spread and peak, and the offset that it implements if any."""
    attention = rows_of("attention", attention, grid, None, extra_tokens)
    eps = limits_for(attention, eps, None).allowed(1.0)
    sums = reduce(Sums.__add__, sums_of(attention))
    count = sums.queries * sums.images
    masses, shape = sums.mass.sum(0).reshape(attention.heads, -1), sums.having.shape
    peaks = masses.argmax(-1)
    away = np.stack(np.unravel_index(np.arange(sums.having.size), shape), -1) - np.array(shape) // 2
    weakest = np.full(attention.heads, np.inf)
    targets = shift_targets(attention.grid, [tuple(int(x) for x in away[peak]) for peak in peaks])
    for _, rows, block in attention.pieces(np.arange(attention.grid.shape[0])):
        for head, places in enumerate(targets.places[:, rows]):
            queries = np.flatnonzero(places >= 0)
            weakest[head] = min(weakest[head], block[head, queries, places[queries]].min(initial=np.inf))
    readings = []
    for head, (mass, peak) in enumerate(zip(masses, peaks, strict=True)):
        shares = mass / mass.sum() if mass.sum() > 0 else mass
        center = shares @ away
        spread = float(np.sqrt(shares @ ((away - center) ** 2).sum(1)))
        offset, most = tuple(int(x) for x in away[peak]), sums.having.ravel()[peak] > sums.queries / 2
        implemented = offset if 2 * (1 - weakest[head]) <= eps and most else None
        numbers = (tuple(map(float, center)), spread, offset, float(mass[peak] / count), float(weakest[head]))
        readings.append(HeadReading(head, *numbers, implemented))
    return tuple(readings)


@final
@dataclass(frozen=True)
class Redundancy:
    """For each head its distance from the span of the others, over its norm; and heads that can go together."""

    distances: tuple[float, ...]
    removable: tuple[int, ...]


def redundant_heads(
    attention: Any, *, grid: Sequence[int] | int | None = None, extra_tokens: int = 0, eps: float | None = None
) -> Redundancy:
    """Which heads the span does not need: those at a distance of at most eps from the span of the ones that stay.

    Distances are computed in float64, also those of exact rows, and count as none up to what it cannot tell from 0.
    """
    attention = rows_of("attention", attention, grid, None, extra_tokens)
    eps = limits_for(attention, eps, None).allowed(1.0)
    factor = np.asarray(np.linalg.qr(np.concatenate(reduce(Sums.__add__, sums_of(attention)).factor), mode="r"))
    norms, cut = np.linalg.norm(factor, axis=0), max(NEGLIGIBLE, eps)

    def distance(head: int, others: list[int]) -> float:
        if not others:
            return 1.0
        solution = np.linalg.lstsq(factor[:, others] / norms[others], factor[:, head] / norms[head], rcond=cut)[0]
        return float(np.linalg.norm(factor[:, head] / norms[head] - factor[:, others] / norms[others] @ solution))

    everyone = range(attention.heads)
    distances = tuple(distance(head, [h for h in everyone if h != head]) for head in everyone)
    staying = list(everyone)
    for head in reversed(everyone):
        rest = [h for h in staying if h != head]
        if rest and distance(head, rest) <= cut:
            staying = rest
    return Redundancy(distances, tuple(h for h in everyone if h not in staying))


@final
@dataclass(frozen=True)
class MovedPattern:
    """Heads whose mean attention is one pattern, moved by `shift_targets` from that of the first of them."""

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

    patterns: tuple[MovedPattern, ...]
    relative: float

    @property
    def reads_as(self) -> str:
        """One pattern moved by the shifts of a kernel is one convolution (of the image seen through the pattern)."""
        if self.relative < LEAST_RELATIVE:
            return "not relative to position"
        if len(self.patterns) > 1:
            return f"a mixture of {len(self.patterns)} convolutions"
        return "one convolution" if self.patterns[0].kernel else "one sparse convolution"


def profiles(
    attention: Any, *, grid: Sequence[int] | int | None = None, extra_tokens: int = 0, tolerance: float = 0.05
) -> Profiles:
    """Which heads are translates of one pattern in their mean attention by displacement, and what the layer reads as.

    Two heads have one pattern if, moved by the difference of their peaks, they differ by at most `tolerance` of their
    mass on the displacements that both have. Five percent tells a neighbour's softmax from a translate's.
    """
    attention = rows_of("attention", attention, grid, None, extra_tokens)
    sums = reduce(Sums.__add__, sums_of(attention))
    masses = sums.mass.sum(0)
    means = np.divide(masses, sums.having, out=np.zeros_like(masses), where=sums.having > 0)
    mass = means / means.sum(tuple(range(1, means.ndim)), keepdims=True)
    peaks = [np.array(np.unravel_index(int(each.argmax()), each.shape)) for each in masses]
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
        tuple(MovedPattern(tuple(h for h, _ in group), tuple(s for _, s in group)) for group in groups),
        float(np.nan_to_num(shares(sums, attention.by_position)(None)[0], nan=1.0).min()),
    )


def difference(first: Array, second: Array, shift: Offset) -> float:
    """Half the sum of |first moved by shift - second| where both are, over the larger of their masses there."""
    ours = tuple(slice(max(0, -s), side - max(0, s)) for s, side in zip(shift, first.shape, strict=True))
    theirs = tuple(slice(max(0, s), side - max(0, -s)) for s, side in zip(shift, first.shape, strict=True))
    a, b = first[ours], second[theirs]
    mass = max(a.sum(), b.sum())
    return float(np.abs(a - b).sum() / (2 * mass)) if mass > 0 else 1.0
