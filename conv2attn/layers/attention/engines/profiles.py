"""Profiles: the softmax of one head along one axis, for an axis as a whole or in tiles of one shape."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from conv2attn.layers.attention.recipe import Question, score_dtype
from conv2attn.theory.basis import AttentionGrid, HeadNumbers, Operator, cut_softmax
from conv2attn.theory.basis.operators import cut_depth

TILES = {"cpu": (16, 3)}  # measured: most queries per tile, and least length of a tiled axis in windows
TILE = (64, 2)  # chosen for other devices: on an H100 one product was as fast as tiles up to a side of about 112
LEFT_OUT = 2.0**-10  # chosen: weights left out along an axis are far below the rounding of one product


Crop = tuple[int, int]
"""The first key of an axis, and the one after the last, inside an image."""


@final
@dataclass(frozen=True)
class Tiling:
    """An axis in `count` tiles of `queries` queries: tile t reads the `keys` keys that begin with `first + t step`.

    A single tile reads the keys of the grid. Several tiles may reach beyond the grid with weight 0, and the last may
    have queries beyond the grid, which are dropped.
    """

    count: int
    queries: int
    keys: int
    first: int = 0
    step: int = 1

    @classmethod
    def whole(cls, grid: AttentionGrid, axis: int) -> "Tiling":
        """All queries of an axis, which read all keys."""
        return cls(1, grid.queries[axis], grid.keys[axis])

    def window(self, crop: Crop) -> int:
        """The number of entries of an image that a tile reads; a tile of the whole grid skips zeros of the padding."""
        return self.keys if self.count > 1 else crop[1] - crop[0]

    def margins(self, crop: Crop) -> tuple[int, int]:
        """The number of zeros to add before and after an image with the keys of `crop`, or to crop if negative."""
        if self.count == 1:
            return 0, 0
        return crop[0] - self.first, self.first + (self.count - 1) * self.step + self.keys - crop[1]


def profiles_of(
    operators: Operator,
    grid: AttentionGrid,
    axis: int,
    tiling: Tiling,
    heads: slice,
    dtype: torch.dtype,
    crop: Crop,
    depths: Tensor | None = None,
) -> Tensor:
    """The profiles of `heads`, softmax over the keys of the grid, as tiles read them: (heads, tiles, queries, keys).

    Args:
        depths: for each head, scores this far below a query's largest are left out. Such weights would cause subnormal
            products, which take some processors four times as long.
    """
    numbers, keys = (torch.arange(n, device=grid.device) for n in (tiling.count * tiling.queries, tiling.keys))
    if tiling.count > 1:
        keys = (tiling.first + tiling.step * (numbers // tiling.queries))[:, None] + keys
    displacement = keys - (grid.sites.before[axis] + grid.sites.stride[axis] * numbers)[:, None]
    scores = operators.on(grid).axis_scores(displacement, axis, score_dtype(dtype), heads)
    if tiling.count > 1:
        beyond = ((keys < 0) | (keys >= grid.keys[axis])) & (numbers[:, None] < grid.queries[axis])
        # Queries beyond the grid keep their keys, since a row of -inf alone would be NaN; they are dropped later.
        scores = scores.masked_fill(beyond, -math.inf)
    if depths is not None:
        top, depth = scores.amax(-1, keepdim=True), depths[heads, None, None]
        margin = 8 * torch.finfo(scores.dtype).eps * (top.abs() + depth)  # for rounded scores
        scores = scores.masked_fill(scores < top - depth - margin, -math.inf)
    # The softmax is in the dtype of scores; only its result is rounded to that of the image.
    weights = cut_softmax(scores).to(dtype)
    if tiling.count == 1:
        weights = weights.narrow(2, crop[0], crop[1] - crop[0])
    return weights.unflatten(1, (tiling.count, tiling.queries))


@final
@dataclass(frozen=True)
class KeysRead:
    """The keys that heads with these numbers read on a grid; all keys without numbers.

    Args:
        every: whether every key with a weight above 0 is read, as gradients of positions require. Otherwise the unread
            keys of a query weigh at most `LEFT_OUT` ulp together, and the softmax over the others is attention on a
            smaller grid, for which the bounds on leak and rounding hold unchanged.
    """

    numbers: HeadNumbers | None
    grid: AttentionGrid
    dtype: torch.dtype
    every: bool

    @classmethod
    def of(cls, question: Question, grid: AttentionGrid) -> "KeysRead":
        """All keys without numbers; all keys with weight if positions are trained."""
        numbers = None if question.free else question.facts.numbers
        return cls(numbers, grid, question.dtype, every=question.trained)

    def tiling(self, heads: Sequence[int], axis: int, crop: Crop) -> Tiling:
        """One product along an axis that is short compared with the reach of `heads`, tiles along a longer one."""
        queries, stride, ends = self.grid.queries[axis], self.grid.sites.stride[axis], self.ends(heads, axis)
        size, fewest = TILES.get(torch.device(self.grid.device).type, TILE)
        count = -(-queries // size)
        # Tiles pay only if an axis is long compared with what a tile reads; the limits were measured.
        if ends is None or count == 1 or crop[1] - crop[0] <= fewest * (size * stride + ends[1] - ends[0]):
            return Tiling.whole(self.grid, axis)
        tile = -(-queries // count)
        keys = (tile - 1) * stride + ends[1] - ends[0] + 1
        return Tiling(count, tile, keys, self.grid.sites.before[axis] + ends[0], tile * stride)

    def ends(self, heads: Sequence[int], axis: int) -> tuple[int, int] | None:
        """The displacements of the first and the last key that one of `heads` reads for any query of an axis.

        For a target beyond the grid, the nearest key is some distance away, and all keys hardly farther are read. None
        if the heads are unknown, or a head has no maximum at its centre.
        """
        numbers, side, sites, every = self.numbers, self.grid.keys[axis], self.grid.sites, []
        if numbers is None or not (numbers.centers and numbers.finite):
            return None
        first, last = sites.before[axis], sites.before[axis] + (self.grid.queries[axis] - 1) * sites.stride[axis]
        for alpha, center in ((numbers.alphas[head], numbers.centers[head][axis]) for head in heads):
            if not alpha > 0:
                return None
            room, apart = math.sqrt(self.room(alpha, 2 * side + abs(center))), abs(center - round(center))
            # A key is read if its squared distance exceeds that of the nearest by at most `room` squared. The nearest
            # is `apart` away, or at the border for the query with the farthest target beyond it.
            low = center - math.hypot(max(apart, last + center - (side - 1)), room)
            high = center + math.hypot(max(apart, -(first + center)), room)
            every.append((math.ceil(low), math.floor(high)))
        return min(low for low, _ in every), max(high for _, high in every)

    def room(self, alpha: float, reach: float) -> float:
        """The largest excess of a read key's squared distance over the least one, which is at most `reach` away."""
        margin = 8 * torch.finfo(score_dtype(self.dtype)).eps * reach**2 if self.every else 0.0  # for rounded scores
        return self.depth(alpha) / alpha + margin

    def depths(self) -> Tensor | None:
        """For each head, how far below a query's largest score one is left out; None if none is."""
        if self.every or self.numbers is None or not (self.numbers.centers and self.numbers.finite):
            return None
        depths = [self.depth(alpha) if alpha > 0 else math.inf for alpha in self.numbers.alphas]
        return torch.tensor(depths, dtype=score_dtype(self.dtype), device=self.grid.device)

    def depth(self, alpha: float) -> float:
        """The depth below a query's largest score from which a key is left out.

        Beyond a depth d, at distances from r >= sqrt(d / alpha) on, scores fall by more than 2 alpha r from one key to
        the next: on both sides the keys weigh at most `2 exp(-d) / (1 - exp(-2 sqrt(alpha d)))`.
        """
        whole = cut_depth(score_dtype(self.dtype)) + 1
        if self.every:
            return whole
        least = -math.log(torch.finfo(self.dtype).eps * LEFT_OUT)
        return min(whole, least + math.log(-2 / math.expm1(-2 * math.sqrt(alpha * least))))
