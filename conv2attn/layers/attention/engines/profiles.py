"""Profiles: the softmax of one head along one axis, for an axis in one piece or in tiles of one shape."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from conv2attn.layers.attention.recipe import Question, score_dtype
from conv2attn.theory.basis import AttentionGrid, HeadNumbers, Operator, cut_softmax
from conv2attn.theory.basis.operators import cut_depth

TILES = {"cpu": (16, 3)}  # measured: most queries of a tile, and the fewest windows that an axis in tiles is long
TILE = (64, 2)  # chosen for other devices: on an H100 one product was as fast as tiles up to a side of about 112
LEFT_OUT = 2.0**-10  # chosen: what frozen heads leave out along an axis is far below the rounding of one product


Crop = tuple[int, int]
"""The first key of an axis, and the one after the last, of those that an image holds."""


@final
@dataclass(frozen=True)
class Tiling:
    """An axis in `count` tiles of `queries` queries: tile t reads the `keys` keys that begin with `first + t step`.

    One tile reads the keys of the grid. Several may read places beyond it, which weigh 0, and the last one may have
    queries beyond those of the grid, which are dropped.
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
        """How many numbers of an image a tile reads: one that reads the whole grid leaves zeros of the padding out."""
        return self.keys if self.count > 1 else crop[1] - crop[0]

    def margins(self, crop: Crop) -> tuple[int, int]:
        """How many zeros are to be added before and behind an image whose keys are those of `crop`; or left out."""
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
        depths: for each head of the layer, how far below the largest of a query a score is left out. Kept, such weights
            make subnormal numbers of the products behind, which take some processors four times as long.
    """
    numbers, keys = (torch.arange(n, device=grid.device) for n in (tiling.count * tiling.queries, tiling.keys))
    if tiling.count > 1:
        keys = (tiling.first + tiling.step * (numbers // tiling.queries))[:, None] + keys
    displacement = keys - (grid.sites.before[axis] + grid.sites.stride[axis] * numbers)[:, None]
    scores = operators.on(grid).axis_scores(displacement, axis, score_dtype(dtype), heads)
    if tiling.count > 1:
        beyond = ((keys < 0) | (keys >= grid.keys[axis])) & (numbers[:, None] < grid.queries[axis])
        # Queries beyond the grid keep their keys: a row of -inf alone would be NaN, and they are dropped later.
        scores = scores.masked_fill(beyond, -math.inf)
    if depths is not None:
        top, depth = scores.amax(-1, keepdim=True), depths[heads, None, None]
        margin = 8 * torch.finfo(scores.dtype).eps * (top.abs() + depth)  # for rounded scores
        scores = scores.masked_fill(scores < top - depth - margin, -math.inf)
    weights = cut_softmax(scores).to(dtype)
    if tiling.count == 1:
        weights = weights.narrow(2, crop[0], crop[1] - crop[0])
    return weights.unflatten(1, (tiling.count, tiling.queries))


@final
@dataclass(frozen=True)
class KeysRead:
    """Which keys heads with these numbers read on a grid: all those without numbers.

    Args:
        every: whether a key is read where it weighs more than 0, as gradients of positions ask. Otherwise all keys that
            a query does not read weigh at most `LEFT_OUT` ulp, and the softmax over the others is attention on a
            smaller grid, for which the bounds on the leak and on the rounding hold as they stand.
    """

    numbers: HeadNumbers | None
    grid: AttentionGrid
    dtype: torch.dtype
    every: bool

    @classmethod
    def of(cls, question: Question, grid: AttentionGrid) -> "KeysRead":
        """Without numbers all keys; all that weigh anything where positions are trained."""
        numbers = None if question.free else question.facts.numbers
        return cls(numbers, grid, question.dtype, every=question.trained)

    def tiling(self, heads: Sequence[int], axis: int, crop: Crop) -> Tiling:
        """One product along an axis that is short against what `heads` read, and tiles along a longer one."""
        queries, stride, ends = self.grid.queries[axis], self.grid.sites.stride[axis], self.ends(heads, axis)
        size, fewest = TILES.get(torch.device(self.grid.device).type, TILE)
        count = -(-queries // size)
        if ends is None or count == 1 or crop[1] - crop[0] <= fewest * (size * stride + ends[1] - ends[0]):
            return Tiling.whole(self.grid, axis)
        tile = -(-queries // count)
        keys = (tile - 1) * stride + ends[1] - ends[0] + 1
        return Tiling(count, tile, keys, self.grid.sites.before[axis] + ends[0], tile * stride)

    def ends(self, heads: Sequence[int], axis: int) -> tuple[int, int] | None:
        """The displacements of the first and the last key that one of `heads` reads for any query of an axis.

        A target beyond the grid is up to some distance from its nearest key, and then all keys are read that are
        hardly farther. None where nothing is known of the heads, or a head is no bump around its centre.
        """
        numbers, side, sites, every = self.numbers, self.grid.keys[axis], self.grid.sites, []
        if numbers is None or not (numbers.centers and numbers.finite):
            return None
        first, last = sites.before[axis], sites.before[axis] + (self.grid.queries[axis] - 1) * sites.stride[axis]
        for alpha, center in ((numbers.alphas[head], numbers.centers[head][axis]) for head in heads):
            if not alpha > 0:
                return None
            room, apart = math.sqrt(self.room(alpha, 2 * side + abs(center))), abs(center - round(center))
            # A key is read if its squared distance exceeds that of the nearest by at most `room` squared. The
            # nearest is `apart` away, or at the border for the query whose target is farthest beyond it.
            low = center - math.hypot(max(apart, last + center - (side - 1)), room)
            high = center + math.hypot(max(apart, -(first + center)), room)
            every.append((math.ceil(low), math.floor(high)))
        return min(low for low, _ in every), max(high for _, high in every)

    def room(self, alpha: float, reach: float) -> float:
        """By how much the squared distance of a key that is read may exceed the least one, at most `reach` away."""
        margin = 8 * torch.finfo(score_dtype(self.dtype)).eps * reach**2 if self.every else 0.0  # for rounded scores
        return self.depth(alpha) / alpha + margin

    def depths(self) -> Tensor | None:
        """For each head, how far below a query's largest score one is left out; None where nothing is."""
        if self.every or self.numbers is None or not (self.numbers.centers and self.numbers.finite):
            return None
        depths = [self.depth(alpha) if alpha > 0 else math.inf for alpha in self.numbers.alphas]
        return torch.tensor(depths, dtype=score_dtype(self.dtype), device=self.grid.device)

    def depth(self, alpha: float) -> float:
        """How far the score of a key that is left out is below the largest.

        Beyond a depth d, at distances from r >= sqrt(d / alpha) on, scores fall by more than 2 alpha r from one key to
        the next: on both sides the keys weigh at most `2 exp(-d) / (1 - exp(-2 sqrt(alpha d)))`.
        """
        whole = cut_depth(score_dtype(self.dtype)) + 1
        if self.every:
            return whole
        least = -math.log(torch.finfo(self.dtype).eps * LEFT_OUT)
        return min(whole, least + math.log(-2 / math.expm1(-2 * math.sqrt(alpha * least))))
