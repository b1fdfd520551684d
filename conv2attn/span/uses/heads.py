"""Attention of each head by displacement: its centre, spread and peak, and the heads that the span does not need."""

from dataclasses import dataclass
from typing import final

import numpy as np

from conv2attn.basis import Offset
from conv2attn.span.conditions.problem import AttentionRows, Targets
from conv2attn.span.measures import boxes, masses
from conv2attn.span.programme.factors import NEGLIGIBLE, triangle


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


def read_heads(attention: AttentionRows, eps: float) -> tuple[HeadReading, ...]:
    """The reading of every head; `eps` is the residual that counts as none."""
    seen = masses(attention)
    peaks = seen.mass.reshape(seen.heads, -1).argmax(-1)
    weakest, places, corner = np.full(seen.heads, np.inf), boxes(attention.grid), np.array(attention.grid.keys) - 1
    middles = np.stack(np.unravel_index(peaks, seen.having.shape), -1)
    for _, rows, block in attention.pieces():
        for at, box in enumerate(places[rows]):
            keys = middles - [along.start for along in box]
            for one in np.flatnonzero(((keys >= 0) & (keys <= corner)).all(-1)):
                key = np.ravel_multi_index(tuple(keys[one]), attention.grid.keys)
                weakest[one] = min(weakest[one], block[one, at, key])
    away = np.stack(np.unravel_index(np.arange(seen.having.size), seen.having.shape), -1) - corner
    found = []
    for head, (mass, peak) in enumerate(zip(seen.mass.reshape(seen.heads, -1), peaks, strict=True)):
        shares = mass / mass.sum() if mass.sum() > 0 else mass
        center = shares @ away
        spread = float(np.sqrt(shares @ ((away - center) ** 2).sum(-1)))
        offset, most = tuple(int(x) for x in away[peak]), seen.having.ravel()[peak] > seen.rows / 2
        implemented = offset if 2 * (1 - weakest[head]) <= eps and most else None
        numbers = (tuple(map(float, center)), spread, offset, float(mass[peak] / seen.rows), float(weakest[head]))
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
