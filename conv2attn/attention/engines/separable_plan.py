"""How `separable` evaluates a layer: which heads share profiles, in which order it sums, and how much at once."""

import math
from dataclasses import dataclass, replace
from typing import final

import torch

from conv2attn.attention.engines.profiles import AxisPlan, Block, Reading
from conv2attn.attention.recipe import Question
from conv2attn.basis import AttentionGrid

ROWS, COLUMNS = 16, 64  # measured: queries of a slab of rows, and of a block of columns
SLAB = 8 * 2**20  # chosen: bytes of mixed numbers at once, beyond which images come one after another
COPY = 24  # measured: to copy one number of the weights takes as long as so many multiply-adds
TYPICAL = 32  # chosen: side of a grid while its sides are not known

Path = tuple[int, ...]


@final
@dataclass(frozen=True)
class Plan:
    """The profiles along each axis, the order of the sums, and how much is computed at once.

    Args:
        axes: one for each axis of the grid.
        prefixes: the profiles before the last axis, each path once; `prefix[h]` is that of head h.
        order: the heads, row-major, where they are all pairs of a prefix and a profile of the last axis, or None.
        between: whether the channel product comes before the last axis, otherwise after it.
        images: how many at once; all where it is None.
        direct: whether the device computes convolutions as plain sums.
        cost: multiply-adds for one image.
    """

    axes: tuple[AxisPlan, ...]
    prefixes: tuple[Path, ...]
    prefix: tuple[int, ...]
    order: tuple[int, ...] | None
    between: bool
    images: int | None
    direct: bool
    cost: int = 0


def plan_for(question: Question) -> Plan:
    """The plan for the present heads; heads that are trained keep each its own profiles, and so its own gradient."""
    numbers, grid = question.known.numbers, question.grid
    heads, axes = range(question.basis.operators.heads), range(len(grid.keys))
    shared = bool(numbers.centers) and not question.free and not question.trained
    plans = []
    for axis in axes:
        traits = [(numbers.alphas[h], numbers.centers[h][axis]) if shared else h for h in heads]
        distinct = list(dict.fromkeys(traits))
        first = tuple(map(traits.index, distinct))
        plans.append(AxisPlan(first, tuple(map(distinct.index, traits)), (whole(grid, axis),)))
    paths = list(zip(*(plan.profile for plan in plans[:-1]), strict=True)) if len(axes) > 1 else [()] * len(heads)
    prefixes = tuple(dict.fromkeys(paths))
    prefix = tuple(map(prefixes.index, paths))
    pairs = list(zip(prefix, plans[-1].profile, strict=True))
    box = len(set(pairs)) == len(pairs) == len(prefixes) * len(plans[-1].heads)
    order = tuple(sorted(heads, key=pairs.__getitem__)) if box else None
    plan = Plan(tuple(plans), prefixes, prefix, order, False, None, question.known.indirect is None)
    if not question.traced:
        plan = in_slabs(plan, question)
    return in_cheaper_order(plan, question)


def whole(grid: AttentionGrid, axis: int) -> Block:
    """All queries of an axis, which read all keys."""
    return Block(0, grid.queries[axis], 0, grid.keys[axis])


def in_slabs(plan: Plan, question: Question) -> Plan:
    """The plan in slabs of rows and blocks of columns that read only keys with weight, under the memory limit."""
    grid, reading = question.grid, reading_of(question, question.grid)
    weights, itemsize = question.basis.weights, torch.finfo(question.dtype).bits // 8
    mixed = weights.d_in * len(plan.prefixes) * math.prod(grid.keys[1:])
    ended = max(weights.d_out * len(plan.axes[-1].heads), weights.d_in * len(plan.prefix))
    row = itemsize * (mixed + 2 * ended * math.prod(grid.queries[1:-1]) * max(grid.keys[-1], grid.queries[-1]))
    rows = max(1, min(ROWS, grid.queries[0], question.memory_limit // row))
    images = max(1, min(SLAB, question.memory_limit) // (rows * row))
    last, axes = len(plan.axes) - 1, []
    for axis, each in enumerate(plan.axes):
        size = COLUMNS if axis == last else rows if axis == 0 else grid.queries[axis]
        blocks = reading.blocks(each.heads, axis, size)
        every = all((block.first, block.last) == (0, grid.keys[axis]) for block in blocks)
        axes.append(replace(each, blocks=blocks, whole=every))
    return replace(plan, axes=tuple(axes), images=images if images < question.shape[0] else None)


def reading_of(question: Question, grid: AttentionGrid) -> Reading:
    """Which keys are read on a grid: without numbers all, and all that weigh anything where positions are trained."""
    numbers = None if question.free else question.known.numbers
    return Reading(numbers, grid, question.dtype, every=question.trained)


def longest_mean(plan: Plan, question: Question) -> int:
    """The most keys that weigh anything for one query along the last axis, where it is known."""
    if question.traced or question.free or not question.known.numbers.centers:
        return 0
    stride = question.basis.sites.stride[-1]
    return max(b.last - b.first - stride * (b.stop - b.start - 1) for b in plan.axes[-1].blocks)


def in_cheaper_order(plan: Plan, question: Question) -> Plan:
    """The plan with the channel product before the last axis, or after it: the one with fewer multiply-adds.

    It comes last, all the same, in half precision, which rounds what it stores, and where sums over the keys of all
    profiles would be longer than sums over all channels are, so that the bound on the rounding of those holds for both.
    """
    weights, heads, last = question.basis.weights, len(plan.prefix), plan.axes[-1]
    batch, mixing, rows, keys, queries, area = 1, 0, TYPICAL, TYPICAL, TYPICAL, TYPICAL**2
    if not question.traced:
        rows, keys, area = math.prod(question.grid.queries[:-1]), question.grid.keys[-1], last.area
        queries, batch = question.grid.queries[-1], max(1, question.shape[0])
        mixing = weights.d_in * len(plan.prefixes) * sum(each.area for each in plan.axes[:-1]) * keys
    product = heads * weights.d_in * weights.d_out // weights.groups
    after = rows * (product * queries + weights.d_in * heads * area)
    before = rows * (product * keys + weights.d_out * len(last.heads if plan.order else plan.prefix) * area)
    before += COPY * product // batch
    summed = weights.d_in // weights.groups * (len(plan.prefixes) if plan.order else 1)
    rounded = question.dtype not in (torch.float32, torch.float64) or longest_mean(plan, question) > summed
    between = before < after and not rounded
    return replace(plan, between=between, cost=mixing + (before if between else after))
