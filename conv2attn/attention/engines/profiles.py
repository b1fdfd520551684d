"""Profiles: the softmax of one head along one axis, in blocks of queries that read only the keys with weight."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from conv2attn.attention.recipe import Question, score_dtype
from conv2attn.basis import AttentionGrid, HeadNumbers, Operator, cut_softmax
from conv2attn.basis.operators.softmax import cut_depth

Shape = tuple[int, int, int]
"""A block: the displacement of its first key from its first query, its queries, its keys."""
ROW_QUERIES, COLUMN_QUERIES = 16, 32  # measured: queries of a slab of rows, and of a block of columns
SLAB = 8 * 2**20  # chosen: bytes of mixed numbers at once, beyond which images come one after another
LEFT_OUT = 2.0**-10  # chosen: what frozen heads leave out along an axis is far below the rounding of one product


@final
@dataclass(frozen=True)
class Block:
    """Queries `start` to `stop` of an axis read the keys `first` to `last`; both ends are exclusive."""

    start: int
    stop: int
    first: int
    last: int

    def shape(self, grid: AttentionGrid, axis: int) -> Shape:
        """The numbers that decide the profiles of the block: blocks of one shape have equal profiles."""
        site = grid.sites.before[axis] + self.start * grid.sites.stride[axis]
        return self.first - site, self.stop - self.start, self.last - self.first

    def read(self, keys: Tensor, axis: int) -> Tensor:
        """The keys that the block reads."""
        count = self.last - self.first
        return keys if count == keys.shape[axis] else keys.narrow(axis, self.first, count)


def whole_axis(grid: AttentionGrid, axis: int) -> Block:
    """All queries of an axis, which read all keys."""
    return Block(0, grid.queries[axis], 0, grid.keys[axis])


def profiles_of(
    operators: Operator,
    grid: AttentionGrid,
    axis: int,
    heads: Sequence[int],
    blocks: Sequence[Block],
    dtype: torch.dtype,
) -> list[Tensor]:
    """The profiles of `heads` for each block, (heads, queries, keys) in `dtype`; blocks of one shape share them."""
    shapes = [block.shape(grid, axis) for block in blocks]
    family = operators.on(grid)
    if len(shapes) == 1:
        return [profile_of(family, grid, axis, heads, shapes[0], dtype)]
    by_shape = {shape: profile_of(family, grid, axis, heads, shape, dtype) for shape in dict.fromkeys(shapes)}
    return [by_shape[shape] for shape in shapes]


def profile_of(
    operators: Operator, grid: AttentionGrid, axis: int, heads: Sequence[int], shape: Shape, dtype: torch.dtype
) -> Tensor:
    """The softmax of `heads` over the keys of a block of this shape: (heads, queries, keys)."""
    first, queries, keys = shape
    sites = grid.sites.stride[axis] * torch.arange(queries, device=grid.device)
    displacement = first + torch.arange(keys, device=grid.device) - sites[:, None]
    every = None if list(heads) == list(range(operators.heads)) else list(heads)
    return cut_softmax(operators.axis_scores(displacement, axis, score_dtype(dtype), every)).to(dtype)


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

    def blocks(self, heads: Sequence[int], axis: int, size: int) -> tuple[Block, ...]:
        """Blocks of at most `size` queries of an axis, each with the keys that one of `heads` reads."""
        side, before, stride = self.grid.keys[axis], self.grid.sites.before[axis], self.grid.sites.stride[axis]
        end, blocks = self.grid.queries[axis], []
        for start in range(0, end, size):
            stop = min(start + size, end)
            first, last = 0, side
            if self.numbers is not None and self.numbers.centers:
                sites, numbers = (before + start * stride, before + (stop - 1) * stride), self.numbers
                each = [self.keys(numbers.alphas[h], numbers.centers[h][axis], sites, side) for h in heads]
                first, last = min(keys[0] for keys in each), max(keys[1] for keys in each)
            blocks.append(Block(start, stop, first, last))
        return tuple(blocks)

    def keys(self, alpha: float, center: float, sites: tuple[int, int], side: int) -> tuple[int, int]:
        """The first key, and the one after the last, that is read by queries between the two `sites`.

        The key nearest to a target weighs most; another is left out where its squared distance is larger by more than
        `depth` over alpha.
        """
        if not (alpha > 0 and math.isfinite(alpha) and math.isfinite(center)):
            return 0, side
        low, high = sites[0] + center, sites[1] + center
        room = self.depth(alpha) / alpha
        if self.every:  # and a margin for the rounding of scores
            room += 8 * torch.finfo(score_dtype(self.dtype)).eps * (max(abs(low), abs(high)) + side) ** 2
        apart = abs(center - round(center))
        first = low - math.hypot(max(apart, -low, low - (side - 1)), math.sqrt(room))
        last = high + math.hypot(max(apart, -high, high - (side - 1)), math.sqrt(room))
        return max(0, min(side - 1, math.ceil(first))), min(side, max(0, math.floor(last)) + 1)

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
