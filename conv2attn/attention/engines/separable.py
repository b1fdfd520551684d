"""The softmax over a box of scores that are a sum over the axes is the outer product of one softmax an axis: mix rows,
then columns, then channels. Exact for every alpha and every real centre, and for learned positions, borders included:
claim L2d. Heads that see one smoothed image leave the rest to `smoothed`.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import final

import torch
from torch import Tensor

from conv2attn.attention.engines.channels import joined, project
from conv2attn.attention.engines.profiles import (
    COLUMN_QUERIES,
    ROW_QUERIES,
    SLAB,
    Block,
    KeysRead,
    profiles_of,
    whole_axis,
)
from conv2attn.attention.engines.smoothed import decide_smoothed
from conv2attn.attention.recipe import DEPENDS_ON_CONTENT, DROPS_WEIGHTS, Evaluation, Question
from conv2attn.basis import AttentionGrid, Basis

AxisProfiles = list[list[Tensor]]
"""For each axis and block the profiles of all heads: (heads, queries, keys), or (heads, keys, queries) on the last."""


@final
@dataclass(frozen=True)
class Slabs:
    """How much is computed at once.

    Args:
        blocks: of queries for each axis, with the keys that a head reads for them.
        images: how many at once; all where it is None.
        direct: whether the device computes convolutions as plain sums.
    """

    blocks: tuple[tuple[Block, ...], ...]
    images: int | None
    direct: bool


def decide(question: Question) -> Evaluation | str:
    """The recipe for positions alone whose scores are a sum over the axes, otherwise why not.

    It holds the profiles of heads that are not trained.
    """
    operators = question.basis.operators
    if operators.reads_content:
        return DEPENDS_ON_CONTENT
    if question.dropout:
        return DROPS_WEIGHTS
    if not operators.is_separable:
        return "its scores are not a sum over the axes"
    if (run := decide_smoothed(question)) is not None:
        return run
    slabs, kept = slabs_for(question), None
    if question.keeps_profiles:
        with torch.no_grad():
            kept = all_profiles(slabs, question.basis, question.grid, question.dtype)
    return partial(run_slabs, slabs=slabs, kept=kept)


def slabs_for(question: Question) -> Slabs:
    """Slabs of rows and blocks of columns that read only keys with weight, under the memory limit."""
    grid, weights, heads = question.grid, question.basis.weights, question.basis.operators.heads
    direct, last = question.facts.indirect is None, len(grid.keys) - 1
    if question.traced:
        return Slabs(tuple((whole_axis(grid, axis),) for axis in range(last + 1)), None, direct)
    mixed = heads * weights.d_in
    ended = 2 * max(weights.d_out, mixed) * math.prod(grid.queries[1:-1]) * max(grid.keys[-1], grid.queries[-1])
    row = question.dtype.itemsize * (mixed * math.prod(grid.keys[1:]) + ended)
    rows = max(1, min(ROW_QUERIES, grid.queries[0], question.memory_limit // row))
    images = max(1, min(SLAB, question.memory_limit) // (rows * row))
    sizes = [rows, *grid.queries[1:-1], COLUMN_QUERIES] if last else [COLUMN_QUERIES]
    reading = KeysRead.of(question, grid)
    blocks = tuple(reading.blocks(range(heads), axis, size) for axis, size in enumerate(sizes))
    return Slabs(blocks, images if images < question.shape[0] else None, direct)


def all_profiles(slabs: Slabs, basis: Basis, grid: AttentionGrid, dtype: torch.dtype) -> AxisProfiles:
    """The profiles along every axis, laid out as the sums read them."""
    heads = range(basis.operators.heads)
    *others, last = [
        profiles_of(basis.operators, grid, axis, heads, blocks, dtype) for axis, blocks in enumerate(slabs.blocks)
    ]
    return [*others, [weights.mT for weights in last]]


def run_slabs(basis: Basis, image: Tensor, slabs: Slabs, kept: AxisProfiles | None) -> Tensor:
    """The layer, slab after slab of queries."""
    keys = basis.padding.pad(image)
    grid = AttentionGrid(tuple(keys.shape[2:]), basis.sites, image.device)
    profiles = kept or all_profiles(slabs, basis, grid, image.dtype)
    parts = [keys] if slabs.images is None else keys.split(slabs.images)
    return joined([output_of_images(basis, part, slabs, profiles) for part in parts], 0)


def output_of_images(basis: Basis, keys: Tensor, slabs: Slabs, profiles: AxisProfiles) -> Tensor:
    """The output for some images, padded: (batch, d_out, *queries)."""
    *others, last = profiles
    if not others:
        mixed = keys[None, None].expand(basis.operators.heads, -1, -1, -1, -1)
        return project(along_last(mixed, slabs.blocks[-1], last), basis.weights, slabs.direct).squeeze(2)
    lines, rows = keys.movedim(2, 0).contiguous(), []
    for block, weights in zip(slabs.blocks[0], others[0], strict=True):
        mixed = along_rows(block.read(lines, 0), weights)
        for (middle,), (along,) in zip(slabs.blocks[1:-1], others[1:], strict=True):
            mixed = torch.stack([weight @ each for weight, each in zip(along, middle.read(mixed, 4), strict=True)])
        rows.append(project(along_last(mixed, slabs.blocks[-1], last), basis.weights, slabs.direct))
    return joined(rows, 2)


def along_rows(lines: Tensor, weights: Tensor) -> Tensor:
    """The first axis of `lines` mixed by the profiles of all heads: (heads, rows, batch, d_in, *other sides)."""
    flat = lines.flatten(1)
    if torch.compiler.is_compiling():  # one profile after another: a graph of all sizes cannot flatten profiles
        mixed = torch.stack([weight @ flat for weight in weights])
    else:
        mixed = (weights.flatten(0, 1) @ flat).unflatten(0, weights.shape[:2])
    return mixed.unflatten(2, lines.shape[1:])


def along_last(mixed: Tensor, blocks: tuple[Block, ...], profiles: list[Tensor]) -> Tensor:
    """The last axis of `mixed`, (heads, rows, batch, d_in, *sides), mixed block after block.

    Returns:
        (batch, d_in, heads, rows, *sides).
    """
    lines = mixed.flatten(1, -2)
    parts = [torch.bmm(block.read(lines, 2), weights) for block, weights in zip(blocks, profiles, strict=True)]
    return joined(parts, 2).unflatten(1, mixed.shape[1:-1]).movedim((2, 3), (0, 1))
