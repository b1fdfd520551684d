"""Attention of each head by displacement: its centre, spread and peak, and the heads that the span does not need."""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from conv2attn.basis import Offset
from conv2attn.span.conditions.problem import Array, AttentionRows, Targets
from conv2attn.span.programme.factors import NEGLIGIBLE, triangle
from conv2attn.span.sources.grids import Grid


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


@final
@dataclass(frozen=True, eq=False)
class ByDisplacement:
    """Attention to pixels by displacement, arrays (heads, *(2 side - 1)) with displacement 0 in the middle.

    `mass` is the mean over all queries, `least` the smallest of those that have the displacement on the grid, and
    `having` (without heads) the share of queries that do. `relative` is, for each head, the share of its centred
    energy `sum (A - 1/keys)^2` that the mean by displacement explains: 1 where attention depends on it alone.
    """

    mass: Array
    least: Array
    having: Array
    relative: Array

    @property
    def mean(self) -> Array:
        """The mean over the queries that have the displacement on the grid; 0 where none has."""
        return np.divide(self.mass, self.having, out=np.zeros_like(self.mass), where=self.having > 0)


def displacement_bins(grid: Grid, queries: NDArray[np.int64]) -> NDArray[np.int64]:
    """The flat index of `key - site` among the (2 side - 1) of each axis: (queries, pixels)."""
    sides = tuple(2 * side - 1 for side in grid.keys)
    flat = np.zeros((len(queries), 1), dtype=np.int64)
    at = np.unravel_index(queries, grid.queries)
    for axis, side in enumerate(sides):
        along = grid.displacement(axis).numpy()[at[axis]] + grid.keys[axis] - 1
        flat = (flat[:, :, None] * side + along[:, None, :]).reshape(len(queries), -1)
    return flat


def by_displacement(attention: AttentionRows) -> ByDisplacement:
    """The attention of every head by displacement, in one pass."""
    grid, pixels = attention.grid, attention.grid.shape[1]
    shape = tuple(2 * side - 1 for side in grid.keys)
    size, total = int(np.prod(shape)), attention.images * grid.shape[0]
    mass, least, counts = np.zeros((attention.heads, size)), np.full((attention.heads, size), np.inf), np.zeros(size)
    squares = np.zeros(attention.heads)
    for _, rows, block in attention.pieces():
        bins = displacement_bins(grid, np.arange(rows.start, rows.stop)).reshape(-1)
        counts += np.bincount(bins, minlength=size)
        kept = block[..., :pixels].reshape(attention.heads, -1)
        squares += ((kept - 1 / pixels) ** 2).sum(-1)
        for head, entries in enumerate(kept):
            mass[head] += np.bincount(bins, entries, size)
            np.minimum.at(least[head], bins, entries)
    mean = mass / np.maximum(counts, 1)
    explained = (counts * (mean - 1 / pixels) ** 2).sum(-1)
    relative = np.divide(explained, squares, out=np.ones_like(squares), where=squares > 1e-12 * total)
    least = np.where(counts > 0, least, 0.0)
    masses, leasts = (each.reshape(-1, *shape) for each in (mass / total, least))
    return ByDisplacement(masses, leasts, (counts / total).reshape(shape), np.minimum(relative, 1.0))


def read_heads(attention: AttentionRows, eps: float) -> tuple[HeadReading, ...]:
    """The reading of every head; `eps` is the residual that counts as none."""
    seen = by_displacement(attention)
    middle = np.array(attention.grid.keys) - 1
    places = np.stack(np.meshgrid(*map(np.arange, seen.having.shape), indexing="ij"), -1) - middle
    found = []
    for head, mass in enumerate(seen.mass):
        peak = np.unravel_index(int(mass.argmax()), mass.shape)
        offset, weakest = tuple(int(x) for x in places[peak]), float(seen.least[head][peak])
        shares = mass / mass.sum() if mass.sum() > 0 else mass
        center = (shares[..., None] * places).reshape(-1, len(middle)).sum(0)
        spread = float(np.sqrt((shares * ((places - center) ** 2).sum(-1)).sum()))
        implemented = offset if 2 * (1 - weakest) <= eps and seen.having[peak] > 0.5 else None
        numbers = (tuple(map(float, center)), spread, offset, float(mass[peak]), weakest)
        found.append(HeadReading(head, *numbers, implemented))
    return tuple(found)


@final
@dataclass(frozen=True)
class Redundancy:
    """For each head its distance from the span of the others, over its norm; and heads that can go together."""

    distances: tuple[float, ...]
    removable: tuple[int, ...]


def redundancy(attention: AttentionRows, eps: float) -> Redundancy:
    """Which heads the span does not need: those at a distance of at most eps from the span of the ones that stay.

    Distances are computed in float64, also those of exact rows, and count as none up to what it cannot tell from 0.
    """
    none = empty_targets(attention)
    factor = triangle(attention, none, np.ones(attention.grid.shape[0], dtype=bool))
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


def empty_targets(attention: AttentionRows) -> Targets:
    """No targets at all."""
    nothing = np.zeros((0, attention.grid.shape[0]), dtype=np.int64)
    return Targets((), nothing, np.zeros((0, 0)), ())
