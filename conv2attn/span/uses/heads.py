"""What each head does: its mean attention by displacement, and what follows from it."""

from dataclasses import dataclass
from typing import final

import numpy as np

from conv2attn.basis import Offset
from conv2attn.span.conditions.problem import Array, AttentionRows, Targets
from conv2attn.span.mixings.factors import NEGLIGIBLE, triangle


@final
@dataclass(frozen=True)
class HeadReading:
    """One head over all its queries, in pixels.

    `center` and `spread` are the mean displacement and the root mean square distance from it; `peak` is the offset with
    the most attention, `share` its mean over the queries that have it on the grid, and `weakest` the least. `offset` is
    the peak if every such query reads it and little more than eps of anything else.
    """

    head: int
    center: tuple[float, ...]
    spread: float
    peak: Offset
    share: float
    weakest: float
    offset: Offset | None


def displacement_means(attention: AttentionRows) -> tuple[Array, Array]:
    """Mean attention by displacement, (heads, *(2 side - 1)), over the queries that have it on the grid; and the least.

    Displacement 0 is in the middle.
    """
    grid = attention.grid
    shape = tuple(2 * side - 1 for side in grid.keys)
    sites = np.stack(np.meshgrid(*(grid.site(a).numpy() for a in range(len(shape))), indexing="ij"), -1)
    flat_sites = sites.reshape(-1, len(shape))
    keys = np.stack(np.meshgrid(*map(np.arange, grid.keys), indexing="ij"), -1).reshape(-1, len(shape))
    middle = np.array(grid.keys) - 1
    sums = np.zeros((attention.heads, int(np.prod(shape))))
    least = np.full_like(sums, np.inf)
    counts = np.zeros(sums.shape[1])
    for _, rows, block in attention.pieces():
        for place, query in enumerate(range(rows.start, rows.stop)):
            bins = np.ravel_multi_index(tuple((keys - flat_sites[query] + middle).T), shape)
            sums[:, bins] += block[:, place]
            least[:, bins] = np.minimum(least[:, bins], block[:, place])
            counts[bins] += 1
    means = sums / np.maximum(counts, 1)
    return means.reshape(-1, *shape), np.where(counts > 0, least, 0.0).reshape(-1, *shape)


def read_heads(attention: AttentionRows, eps: float) -> tuple[HeadReading, ...]:
    """The reading of every head; `eps` is the residual that counts as none."""
    means, least = displacement_means(attention)
    middle = np.array(attention.grid.keys) - 1
    places = np.stack(np.meshgrid(*map(np.arange, means.shape[1:]), indexing="ij"), -1) - middle
    found = []
    for head, mean in enumerate(means):
        peak = np.unravel_index(int(mean.argmax()), mean.shape)
        offset = tuple(int(x) for x in places[peak])
        mass = mean / mean.sum()
        center = (mass[..., None] * places).reshape(-1, len(middle)).sum(0)
        spread = float(np.sqrt((mass * ((places - center) ** 2).sum(-1)).sum()))
        weakest = float(least[head][peak])
        implemented = offset if 2 * (1 - weakest) <= eps else None
        numbers = (tuple(map(float, center)), spread, offset, float(mean[peak]), weakest)
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
