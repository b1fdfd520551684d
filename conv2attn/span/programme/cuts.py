"""One pass over the attention: what mixings leave, and the cutting planes of the queries where they leave most.

At a mixing p, the signs s of `r_q = e_q - p A_q` give `|e_q - phi A_q|_1 >= |r_q|_1 - <A_q s, phi - p>` for every phi.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from conv2attn.bounds import gamma
from conv2attn.span.conditions.portions import Portion
from conv2attn.span.conditions.problem import Array, Targets

UNIT = 2.0**-53
CANDIDATES = 4
"""Mixings a head of which what is left is held at once."""


@final
@dataclass(frozen=True, eq=False)
class Cut:
    """At query `row` = image * queries + query: what is left, the plane's slopes, and signs at these keys (or all)."""

    row: int
    left: float
    slopes: Array
    signs: NDArray[np.int8]
    keys: NDArray[np.int64] | None

    def spread(self, width: int) -> Array:
        """The signs at all keys."""
        if self.keys is None:
            return self.signs.astype(np.float64)
        whole = np.zeros(width)
        whole[self.keys[self.keys >= 0]] = self.signs[self.keys >= 0]
        return whole


def exact_products(mixings: Array) -> NDArray[np.bool_]:
    """Mixings with at most one non-zero, a power of two: the product with attention is exact."""
    powers = np.frexp(np.abs(mixings))[0] == 0.5
    return ((mixings != 0).sum(-1) <= 1) & ((mixings == 0) | powers).all(-1)


def rounded_up(left: Array, mixings: Array, coefficients: Array, asked: Array, row_sum: float, width: int) -> Array:
    """`left`, the computed sums over keys of `e - phi A`, with all rounding of float64 on top.

    No key is asked for by two taps of one query; `asked` is the largest sum of what is asked for at one.
    """
    steps = mixings.shape[-1] + 4
    reach = asked + np.abs(mixings).sum(-1) * row_sum
    selects = exact_products(mixings) & ((coefficients != 0).sum(-1) <= 1)
    drift = np.where(selects, 0.0, gamma(steps, UNIT) * reach)
    return np.asarray((left + drift) * (1 + 2 * gamma(width + 4, UNIT)))


def left_by(portion: Portion, coefficients: Array, mixings: Array) -> Array:
    """`e - phi A` of each candidate, (candidates, queries, keys)."""
    heads, queries, keys = portion.attention.shape
    left = (-mixings @ portion.attention.reshape(heads, -1)).reshape(len(mixings), queries, keys)
    for tap, places in enumerate(portion.places):
        there = np.flatnonzero(places >= 0)
        left[:, there, places[there]] += coefficients[:, tap, None]
    return left


def look(
    seen: Iterable[Portion], targets: Targets, width: int, mixings: Array, wanted: NDArray[np.int64], most: int
) -> tuple[Array, list[list[Cut]]]:
    """Residual of each mixing (candidates, heads), for target `wanted[c]`, at the worst query of these portions.

    It is rounded up. With it come the cuts of the at most `most` queries where it leaves most. `width` is the number of
    keys of the grid.
    """
    worst, row_sum = np.zeros(len(mixings)), 0.0
    cuts: list[list[Cut]] = [[] for _ in mixings]
    per_image = targets.places.shape[1]
    for portion in seen if len(mixings) else ():
        row_sum, width = max(row_sum, float(portion.attention.sum(-1).max())), max(width, portion.attention.shape[2])
        step = CANDIDATES * mixings.shape[-1]
        for start in range(0, len(mixings), step):
            part = slice(start, start + step)
            left = left_by(portion, targets.coefficients[wanted[part]], mixings[part])
            sizes = np.abs(left).sum(-1)
            worst[part] = np.maximum(worst[part], sizes.max(-1))
            for place, size in enumerate(sizes if most else ()):
                cuts[start + place] = merged(cuts[start + place], portion, left[place], size, most, per_image)
    coefficients, asked = targets.coefficients[wanted], targets.largest[wanted]
    return rounded_up(worst, mixings, coefficients, asked, row_sum * (1 + 1e-9), width), cuts


def merged(before: list[Cut], portion: Portion, left: Array, sizes: Array, most: int, per_image: int) -> list[Cut]:
    """The cuts of the queries with the most left, of those before and those of a portion."""
    least = before[-1].left if len(before) == most else -1.0
    if sizes.max() <= least:
        return before
    found = list(before)
    for at in np.argsort(-sizes, kind="stable")[:most]:
        if sizes[at] <= least:
            break
        signs = np.sign(left[at])
        keys = None if portion.keys is None else portion.keys[at]
        row = portion.image * per_image + int(portion.queries[at])
        found.append(Cut(row, float(sizes[at]), portion.attention[:, at] @ signs, signs.astype(np.int8), keys))
    return sorted(found, key=lambda cut: -cut.left)[:most]
