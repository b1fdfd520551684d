"""Profiles: the softmax of one head along one axis. An axis is mixed by one product, or in tiles of one shape.

A tile is a block of queries that reads only the keys with weight. The inner tiles of an axis are one strided view of
it, and one product, since heads that depend on the displacement alone weigh the keys of each tile alike.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from conv2attn.layers.attention.engines.channels import joined
from conv2attn.layers.attention.recipe import Question, score_dtype
from conv2attn.theory.basis import AttentionGrid, HeadNumbers, Operator, cut_softmax
from conv2attn.theory.basis.operators.softmax import cut_depth

TILES = {"cpu": 32}  # measured: queries of a tile
TILE = 64  # chosen for other devices: on an H100 one product was as fast as tiles up to a side of about 112
LEFT_OUT = 2.0**-10  # chosen: what frozen heads leave out along an axis is far below the rounding of one product


Crop = tuple[int, int]
"""The first key of an axis, and the one after the last, of those that an image holds."""
Profiles = tuple[Tensor, ...]
"""The profiles along an axis, block by block: (heads, queries, keys)."""


@final
@dataclass(frozen=True)
class Block:
    """Queries `start` to `stop` of an axis read the keys `first` to `last`; both ends are exclusive."""

    start: int
    stop: int
    first: int
    last: int

    @property
    def queries(self) -> int:
        """How many queries it has."""
        return self.stop - self.start

    def read(self, keys: Tensor, axis: int) -> Tensor:
        """The keys that the block reads."""
        count = self.last - self.first
        return keys if count == keys.shape[axis] else keys.narrow(axis, self.first, count)


@final
@dataclass(frozen=True)
class Tiling:
    """How an axis is mixed: a block before the inner tiles, `count` of these, of which `tile` is the first, one behind.

    An axis that is mixed by one product is one tile, which reads all keys. The keys of a tile begin `step` behind those
    of the last one.
    """

    before: Block | None
    tile: Block
    count: int
    behind: Block | None
    step: int = 0

    @classmethod
    def whole(cls, grid: AttentionGrid, axis: int) -> "Tiling":
        """All queries of an axis, which read all keys."""
        return cls(None, Block(0, grid.queries[axis], 0, grid.keys[axis]), 1, None)

    @property
    def blocks(self) -> list[Block]:
        """The blocks whose profiles differ, in the order of the queries."""
        return [block for block in (self.before, self.tile, self.behind) if block is not None]


def profiles_of(
    operators: Operator, grid: AttentionGrid, axis: int, tiling: Tiling, heads: slice, dtype: torch.dtype, crop: Crop
) -> Profiles:
    """The profiles of `heads` for each block, of the keys within `crop`: (heads, queries, keys) in `dtype`."""
    family, profiles = operators.on(grid), []
    for block in tiling.blocks:
        weights = profile_of(family, grid, axis, heads, block, dtype)
        skipped, count = within(block, crop)
        profiles.append(weights.narrow(2, skipped, count))
    return tuple(profiles)


def within(block: Block, crop: Crop) -> tuple[int, int]:
    """Which of the keys that the block reads are within `crop`: the number of the first, and how many."""
    first = max(block.first, crop[0])
    count = min(block.last, crop[1]) - first
    return (first - block.first, count) if count > 0 else (0, 0)


def profile_of(
    operators: Operator, grid: AttentionGrid, axis: int, heads: slice, block: Block, dtype: torch.dtype
) -> Tensor:
    """The softmax of `heads` over the keys of a block: (heads, queries, keys)."""
    sites, steps = grid.sites, torch.arange(block.queries, device=grid.device)
    at = sites.before[axis] + sites.stride[axis] * (block.start + steps)
    displacement = torch.arange(block.first, block.last, device=grid.device) - at[:, None]
    return cut_softmax(operators.axis_scores(displacement, axis, score_dtype(dtype), heads)).to(dtype)


def along(image: Tensor, dim: int, tiling: Tiling, profiles: Sequence[Tensor], crop: Crop) -> Tensor:
    """Axis `dim` of `image`, whose keys are those within `crop`, mixed by one head's profiles, (queries, keys) each.

    In products of matrices: `image` is stored row-major, and so is the result.
    """
    lead, side = math.prod(image.shape[:dim]), image.shape[dim]
    rest = image.shape[dim + 1 :]
    lines = image.reshape(lead, side, math.prod(rest)) if rest else image.reshape(lead, side)
    parts = []
    for block, weights in zip(tiling.blocks, profiles, strict=True):
        skipped, count = within(block, crop)
        first = block.first + skipped - crop[0] if count else 0
        if block is tiling.tile and tiling.count > 1:
            span = count + (tiling.count - 1) * tiling.step
            view = lines.narrow(1, first, span).unfold(1, count, tiling.step)
            tiles = view.mT.flatten(0, 1) if rest else view.flatten(0, 1)
            parts.append(product(weights, tiles).view(lead, tiling.count * block.queries, *lines.shape[2:]))
        else:
            parts.append(product(weights, lines if count == side else lines.narrow(1, first, count)))
    mixed = joined(parts, 1)
    return mixed.view(*image.shape[:dim], mixed.shape[1], *rest)


def product(weights: Tensor, lines: Tensor) -> Tensor:
    """`weights`, (queries, keys), times each of `lines`, (lines, keys) or (lines, keys, rest)."""
    return lines @ weights.mT if lines.ndim == 2 else weights.expand(lines.shape[0], -1, -1).bmm(lines)


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
        queries, stride, before = self.grid.queries[axis], self.grid.sites.stride[axis], self.grid.sites.before[axis]
        size, ends = TILES.get(torch.device(self.grid.device).type, TILE), self.ends(heads, axis)
        whole = Tiling.whole(self.grid, axis)
        if ends is None or crop[1] - crop[0] <= 2 * (size * stride + ends[1] - ends[0]):
            return whole
        low, high = before + ends[0], before + ends[1]  # what the first query would read on an endless axis
        first = max(0, -(-(crop[0] - low) // stride))
        inner = min(queries, (crop[1] - 1 - high) // stride + 1) - first
        count = inner // size
        if count < 2:
            return whole
        last = first + count * size
        tile = Block(first, first + size, low + first * stride, high + (first + size - 1) * stride + 1)
        ahead = self.block(heads, axis, 0, first) if first else None
        return Tiling(
            ahead, tile, count, self.block(heads, axis, last, queries) if last < queries else None, size * stride
        )

    def block(self, heads: Sequence[int], axis: int, start: int, stop: int) -> Block:
        """Some queries, and the keys that one of `heads` reads for them."""
        side, before, stride = self.grid.keys[axis], self.grid.sites.before[axis], self.grid.sites.stride[axis]
        sites, numbers = (before + start * stride, before + (stop - 1) * stride), self.numbers
        assert numbers is not None
        each = [self.keys(numbers.alphas[h], numbers.centers[h][axis], sites, side) for h in heads]
        return Block(start, stop, min(keys[0] for keys in each), max(keys[1] for keys in each))

    def ends(self, heads: Sequence[int], axis: int) -> tuple[int, int] | None:
        """The displacements of the first and last key that one of `heads` reads far from both ends of an axis.

        None where nothing is known of the heads, or a head is no bump around its centre.
        """
        numbers, every = self.numbers, []
        if numbers is None or not (numbers.centers and numbers.finite):
            return None
        for alpha, center in ((numbers.alphas[head], numbers.centers[head][axis]) for head in heads):
            if not alpha > 0:
                return None
            far = math.hypot(
                abs(center - round(center)), math.sqrt(self.room(alpha, 2 * self.grid.keys[axis] + abs(center)))
            )
            every.append((math.ceil(center - far), math.floor(center + far)))
        return min(low for low, _ in every), max(high for _, high in every)

    def keys(self, alpha: float, center: float, sites: tuple[int, int], side: int) -> tuple[int, int]:
        """The first key, and the one after the last, that is read by queries between the two `sites`.

        The key nearest to a target weighs most; another is left out where its squared distance is larger by more than
        `depth` over alpha.
        """
        if not (alpha > 0 and math.isfinite(alpha) and math.isfinite(center)):
            return 0, side
        low, high = sites[0] + center, sites[1] + center
        room = self.room(alpha, max(abs(low), abs(high)) + side)
        apart = abs(center - round(center))
        first = low - math.hypot(max(apart, -low, low - (side - 1)), math.sqrt(room))
        last = high + math.hypot(max(apart, -high, high - (side - 1)), math.sqrt(room))
        return max(0, min(side - 1, math.ceil(first))), min(side, max(0, math.floor(last)) + 1)

    def room(self, alpha: float, reach: float) -> float:
        """By how much the squared distance of a key that is read may exceed the least one, at most `reach` away."""
        margin = 8 * torch.finfo(score_dtype(self.dtype)).eps * reach**2 if self.every else 0.0  # for rounded scores
        return self.depth(alpha) / alpha + margin

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
