"""Questions about the heads of one layer: which shift each head is, which are redundant, what the layer reads as."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise, product
from math import prod
from typing import Any, final

import numpy as np

from conv2attn.span.attention_rows import Array, AttentionRows, Whole, limits_for
from conv2attn.span.equations import shift_targets
from conv2attn.span.graded_facts.measures import shares
from conv2attn.span.graded_facts.sums import Sums, sums_of
from conv2attn.span.grids import PooledGrid
from conv2attn.span.least_squares import NEGLIGIBLE
from conv2attn.span.reading import rows_of
from conv2attn.theory.basis import Offset

LEAST_RELATIVE = 0.5
"""Heads are read as convolutions if displacement explains at least this share of the energy of each: chosen as half."""


@final
@dataclass(frozen=True)
class HeadReading:
    """One head over all its queries, each with the same weight; lengths are in pixels.

    `center` is the mean displacement of its attention to pixels, `spread` the root mean square distance from it. `peak`
    is the displacement with the most attention, `share` the mean of that attention over all queries, and `weakest` its
    minimum over the queries with the peak on the grid. `offset` is the peak if it is on the grid for most queries and
    the rows of all these are within eps of one-hot at it, in the 1-norm; otherwise None.
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
    """For each head its centre, spread and peak, and the offset that it implements, or None."""
    attention = rows_of("attention", attention, grid, None, extra_tokens)
    eps = limits_for(attention, eps, None).allowed(1.0)
    sums = reduce(Sums.__add__, sums_of(attention))
    count = sums.queries * sums.images
    masses, shape = sums.mass.sum(0).reshape(attention.heads, -1), sums.having.shape
    peaks = masses.argmax(-1)
    away = np.stack(np.unravel_index(np.arange(sums.having.size), shape), -1) - np.array(shape) // 2
    # The peak is that of sums; whether each query reads it needs a second pass, at one target for each head.
    weakest = np.full(attention.heads, np.inf)
    targets = shift_targets(attention.grid, [tuple(int(x) for x in away[peak]) for peak in peaks])
    for _, rows, block in attention.pieces(np.arange(attention.grid.shape[0])):
        for head, places in enumerate(targets.places[:, rows]):
            queries = np.flatnonzero(places >= 0)
            weakest[head] = min(weakest[head], block[head, queries, places[queries]].min(initial=np.inf))
    readings = []
    for head, (mass, peak) in enumerate(zip(masses, peaks, strict=True)):
        pattern = mass / mass.sum() if mass.sum() > 0 else mass
        center = pattern @ away
        spread = float(np.sqrt(pattern @ ((away - center) ** 2).sum(1)))
        # A row with weight w at the peak is off a one-hot row by 1 - w there and by 1 - w elsewhere: 2 (1 - w) in the
        # 1-norm, which is the norm of residuals.
        offset, most = tuple(int(x) for x in away[peak]), sums.having.ravel()[peak] > sums.queries / 2
        implemented = offset if 2 * (1 - weakest[head]) <= eps and most else None
        numbers = (tuple(map(float, center)), spread, offset, float(mass[peak] / count), float(weakest[head]))
        readings.append(HeadReading(head, *numbers, implemented))
    return tuple(readings)


@final
@dataclass(frozen=True)
class Redundancy:
    """For each head its distance from the span of the others, over its norm; and heads that can be removed together."""

    distances: tuple[float, ...]
    removable: tuple[int, ...]


def redundant_heads(
    attention: Any, *, grid: Sequence[int] | int | None = None, extra_tokens: int = 0, eps: float | None = None
) -> Redundancy:
    """Which heads the span does not need: removed one after the other, each within eps of the span of those left.

    Distances are in float64, also for exact rows, so that eps is at least the rounding of float64.
    """
    attention = rows_of("attention", attention, grid, None, extra_tokens)
    eps = limits_for(attention, eps, None).allowed(1.0)
    # R has the inner products of all attention rows, so distances between heads are those of its few columns.
    factor = np.asarray(np.linalg.qr(np.concatenate(reduce(Sums.__add__, sums_of(attention)).factor), mode="r"))
    # Columns of norm 1, so that distances are sines: a head that attends evenly has a small norm, and would count as
    # redundant beside any sharp one.
    norms, cut = np.linalg.norm(factor, axis=0), max(NEGLIGIBLE, eps)

    def distance(head: int, others: list[int]) -> float:
        if not others:
            return 1.0
        solution = np.linalg.lstsq(factor[:, others] / norms[others], factor[:, head] / norms[head], rcond=cut)[0]
        return float(np.linalg.norm(factor[:, head] / norms[head] - factor[:, others] / norms[others] @ solution))

    everyone = range(attention.heads)
    distances = tuple(distance(head, [h for h in everyone if h != head]) for head in everyone)
    # One at a time: of two equal heads each is in the span of the other, and only one of them can go.
    staying = list(everyone)
    for head in reversed(everyone):
        rest = [h for h in staying if h != head]
        if rest and distance(head, rest) <= cut:
            staying = rest
    return Redundancy(distances, tuple(h for h in everyone if h not in staying))


@final
@dataclass(frozen=True)
class MovedPattern:
    """Heads whose mean attention is one pattern; that of `heads[i]` is that of the first, moved by `shifts[i]`."""

    heads: tuple[int, ...]
    shifts: tuple[Offset, ...]

    @property
    def kernel(self) -> bool:
        """Whether the shifts fill a box with even steps, once each, as the taps of a kernel do."""
        axes = [sorted(set(along)) for along in zip(*self.shifts, strict=True)]
        even = all(len({b - a for a, b in pairwise(axis)}) <= 1 for axis in axes)
        return even and set(product(*axes)) == set(self.shifts) and len(self.shifts) == prod(map(len, axes))


@final
@dataclass(frozen=True)
class Profiles:
    """The patterns of a layer, most heads first, and what it reads as: one convolution, a sparse one, or a mixture.

    `relative` is the minimum over heads of the share of a head's centred energy that its mean by displacement explains.
    Below `LEAST_RELATIVE` the layer does not read as any convolution.
    """

    patterns: tuple[MovedPattern, ...]
    relative: float

    @property
    def reads_as(self) -> str:
        """The name of the layer's structure; one pattern at the shifts of a kernel is one convolution."""
        # It is the convolution with that kernel of the image filtered by the pattern.
        if self.relative < LEAST_RELATIVE:
            return "not relative to position"
        if len(self.patterns) > 1:
            return f"a mixture of {len(self.patterns)} convolutions"
        return "one convolution" if self.patterns[0].kernel else "one sparse convolution"

    @property
    def sentence(self) -> str:
        """`reads_as` with its numbers: the share explained by displacement, the taps, or the heads of each pattern."""
        if self.relative < LEAST_RELATIVE:
            return f"reads as {self.reads_as}: displacement explains {self.relative:.0%} of some head"
        if len(self.patterns) > 1:
            sizes = ", ".join(str(len(pattern.heads)) for pattern in self.patterns)
            return f"reads as {self.reads_as}, of {sizes} heads"
        first, *_ = self.patterns
        taps = " ".join(f"({','.join(map(str, shift))})" for shift in sorted(set(first.shifts)))
        return f"reads as {self.reads_as}, its taps counted from head {first.heads[0]}: {taps}"


def profiles(
    attention: Any, *, grid: Sequence[int] | int | None = None, extra_tokens: int = 0, tolerance: float = 0.05
) -> Profiles:
    """Which heads are translates of one pattern, and what the layer reads as.

    Head 2 is head 1 moved by s if query q - s reads with head 2 the keys that query q reads with head 1, including the
    borders and their renormalisation. Two heads have one pattern if, at the best s, their rows differ by at most
    `tolerance` of their mass, on average over the queries that both have. Five percent tells the softmax at a
    neighbouring shift from a translate. Attention that depends on the input is averaged over the images.
    """
    return profiles_of(rows_of("attention", attention, grid, None, extra_tokens), tolerance)


def profiles_of(attention: AttentionRows, tolerance: float = 0.05) -> Profiles:
    """The profiles of attention rows: see `profiles`."""
    # Only shifts next to the difference of the two centres are tried: all of them would be more than there are keys.
    # A head is compared with the first of each group, so that small differences do not add up along a group.
    centres = middle_centres(attention)
    groups: list[list[tuple[int, Offset]]] = []
    for head, centre in enumerate(centres):
        for group in groups:
            first = group[0][0]
            rounded = [round(float(x)) for x in centre - centres[first]]
            # Centres are cut off at the border and so move by less than their patterns: the neighbours are tried too.
            nearby = product(*((x, x - 1, x + 1) for x in rounded))
            shift = next((s for s in nearby if moved_distance(attention, first, head, s) <= tolerance), None)
            if shift is not None:
                group.append((head, shift))
                break
        else:
            groups.append([(head, (0,) * len(centre))])
    groups.sort(key=len, reverse=True)
    sums = reduce(Sums.__add__, sums_of(attention))
    return Profiles(
        tuple(MovedPattern(tuple(h for h, _ in group), tuple(s for _, s in group)) for group in groups),
        float(np.nan_to_num(shares(sums, attention.by_position)(None)[0], nan=1.0).min()),
    )


def middle_centres(attention: AttentionRows) -> Array:
    """The mean key of each head for the query in the middle, (heads, axes)."""
    middle = np.ravel_multi_index(tuple(side // 2 for side in attention.grid.queries), attention.grid.queries)
    row = mean_rows(attention, np.array([middle]))[:, 0]
    keys = np.stack(np.unravel_index(np.arange(attention.grid.shape[1]), attention.grid.keys), -1)
    mass = row.sum(-1, keepdims=True)
    return np.divide(row, mass, out=np.zeros_like(row), where=mass > 0) @ keys


def mean_rows(attention: AttentionRows, queries: Whole) -> Array:
    """The mean over images of the rows of some queries over the keys that are pixels, (heads, queries, keys)."""
    images = (attention.read(image, queries)[..., : attention.grid.shape[1]] for image in range(attention.images))
    return np.asarray(reduce(np.add, images)) / attention.images


LEAST_OVERLAP = 1 / 4
"""Two heads are compared if at least this share of the queries has both: opposite corners of a 3x3 kernel on 4x4 do."""


def moved_distance(attention: AttentionRows, first: int, second: int, shift: Offset) -> float:
    """Half the 1-norm distance of the second head's row at q - shift from the first's at q, per mass: the mean over q.

    Where queries stand on some of the keys alone, the nearest query is taken and the row is moved by the remainder.
    """
    grid, steps, rest = attention.grid, [], []
    for axis, along in enumerate(shift):
        cell = grid.cell if isinstance(grid, PooledGrid) else 1
        stride = 1 if isinstance(grid, PooledGrid) else grid.sites.stride[axis]
        steps.append(-round(along / stride) * cell)
        rest.append(along + steps[-1] // cell * stride)
    ours = [np.arange(max(0, -n), side - max(0, n)) for n, side in zip(steps, grid.queries, strict=True)]
    # Two heads that are compared at a few queries in a corner would agree there by chance.
    if prod(map(len, ours)) < LEAST_OVERLAP * prod(grid.queries):
        return 1.0
    numbers = np.arange(prod(grid.queries)).reshape(grid.queries)
    here = numbers[np.ix_(*ours)].ravel()
    there = numbers[np.ix_(*(each + n for each, n in zip(ours, steps, strict=True)))].ravel()
    total = 0.0
    for start in range(0, len(here), attention.step):
        chunk = slice(start, start + attention.step)
        rows = mean_rows(attention, here[chunk])[first], mean_rows(attention, there[chunk])[second]
        total += sum(moved_apart(a.reshape(grid.keys), b.reshape(grid.keys), rest) for a, b in zip(*rows, strict=True))
    return total / len(here)


def moved_apart(first: Array, second: Array, shift: Sequence[int]) -> float:
    """Half the sum of |first moved by shift - second| on the keys that both have, over the larger of their masses."""
    # Over the larger mass the quotient is at most 1, also where one of the rows has next to nothing on these keys.
    ours = tuple(slice(max(0, -s), side - max(0, s)) for s, side in zip(shift, first.shape, strict=True))
    theirs = tuple(slice(max(0, s), side - max(0, -s)) for s, side in zip(shift, first.shape, strict=True))
    a, b = first[ours], second[theirs]
    mass = max(a.sum(), b.sum())
    return float(np.abs(a - b).sum() / (2 * mass)) if mass > 0 else 1.0
