"""Softmax over all keys, in chunks of queries under the memory limit: exact for every layer, the common oracle.

For heads with full covariances, queries are processed in boxes, and each box reads only keys whose weight is not 0. The
cost is then linear in the tokens.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from conv2attn.errors import EngineError
from conv2attn.layers.attention.engines.channels import joined, project
from conv2attn.layers.attention.recipe import Evaluation, Question, score_dtype
from conv2attn.theory.basis import AttentionGrid, Basis, Sites, cut_softmax
from conv2attn.theory.basis.operators import cut_depth

Part = partial[Tensor]


@final
@dataclass(frozen=True)
class Block:
    """Queries `start` to `stop` of an axis read the keys `first` to `last`; both ends are exclusive."""

    start: int
    stop: int
    first: int
    last: int

    def read(self, keys: Tensor, axis: int) -> Tensor:
        """The keys that the block reads."""
        count = self.last - self.first
        return keys if count == keys.shape[axis] else keys.narrow(axis, self.first, count)


Boxes = tuple[tuple[Block, ...], ...]
BOX_SIDE = 8  # measured: queries of a box along an axis
SCORE_COPIES = 4  # scores, a term being added to them, their softmax, and its cast to the dtype of the image


def decide(question: Question) -> Evaluation:
    """The recipe, which serves every layer.

    Raises:
        EngineError: not even one query fits under the memory limit (C2A202).
    """
    part = partial(output_of_queries, direct=question.facts.indirect is None, dropout=question.dropout)
    # A traced graph also serves images of other sizes, and chunks would fix the number of its queries.
    if question.traced:
        return partial(run, part=part, step=None)
    if (boxes := boxes_for(question)) is not None:
        pairs = math.prod(sum((b.stop - b.start) * (b.last - b.first) for b in blocks) for blocks in boxes)
        return partial(run_boxes, part=part, boxes=boxes, again=bytes_of(pairs, question) > question.memory_limit)
    return partial(run, part=part, step=queries_per_chunk(question))


def queries_per_chunk(question: Question) -> int:
    """The number of queries that keeps the temporary tensors under the memory limit.

    Raises:
        EngineError: not even one fits (C2A202).
    """
    queries, keys = question.grid.shape
    batch, d_in = question.shape[:2]
    # Attention that does not read the images is scored once for all of them.
    scored = batch if question.basis.operators.reads_content else 1
    itemsize = torch.finfo(question.score_dtype).bits // 8
    row = question.basis.operators.heads * itemsize * (SCORE_COPIES * scored * keys + 2 * batch * d_in)
    if row > question.memory_limit:
        raise EngineError(
            "C2A202",
            f"{question.name}: one query takes {row:,} bytes of the memory limit of {question.memory_limit:,}",
            "Raise memory_limit, or use an engine that does not compare all pairs.",
        )
    return max(1, min(queries, question.memory_limit // max(1, row)))


def boxes_for(question: Question) -> Boxes | None:
    """Boxes of queries, each with the keys of weight above 0 for them; None if the reach of heads is unknown.

    A key is left out if its computed weight is 0: its score is below the largest by more than a softmax resolves.
    """
    numbers, grid, boxes = question.facts.numbers, question.grid, []
    if question.free or question.basis.operators.reads_content or min(grid.sites.before + grid.sites.after) < 0:
        return None
    if not (numbers.ellipses and numbers.finite):
        return None
    depth = cut_depth(question.score_dtype) + 1
    for axis, side in enumerate(grid.keys):
        ends = [ellipse.interval(axis, depth) for ellipse in numbers.ellipses]
        low, high = min(low for low, _ in ends), max(high for _, high in ends)
        before, stride, queries = grid.sites.before[axis], grid.sites.stride[axis], grid.queries[axis]
        blocks = []
        for start in range(0, queries, BOX_SIDE):
            stop = min(start + BOX_SIDE, queries)
            first = math.ceil(max(0.0, min(before + start * stride + low, side - 1.0)))
            last = math.floor(min(side - 1.0, max(before + (stop - 1) * stride + high, 0.0))) + 1
            blocks.append(Block(start, stop, min(first, last - 1), last))
        boxes.append(tuple(blocks))
    largest = math.prod(max(b.stop - b.start for b in each) * max(b.last - b.first for b in each) for each in boxes)
    return tuple(boxes) if bytes_of(largest, question) <= question.memory_limit else None


def bytes_of(pairs: int, question: Question) -> int:
    """Bytes needed to compute this many (query, key) pairs."""
    return question.basis.operators.heads * pairs * SCORE_COPIES * question.score_dtype.itemsize


def run_boxes(basis: Basis, image: Tensor, part: Part, boxes: Boxes, again: bool) -> Tensor:
    """The layer box by box; the backward pass computes boxes `again`, so that memory holds only one at a time."""
    keys = basis.padding.pad(image)
    sites = basis.sites

    def output(box: tuple[Block, ...]) -> Tensor:
        # One axis after the other, so that pieces are joined along one axis at a time.
        if len(box) < len(boxes):
            return joined([output((*box, block)) for block in boxes[len(box)]], 2 + len(box))
        read, before, after = keys, [], []
        for axis, block in enumerate(box):
            read, stride = block.read(read, 2 + axis), sites.stride[axis]
            before.append(sites.before[axis] + block.start * stride - block.first)
            after.append(block.last - block.first - before[-1] - (block.stop - block.start - 1) * stride - 1)
        grid = AttentionGrid(tuple(read.shape[2:]), Sites(sites.stride, tuple(before), tuple(after)), keys.device)
        arguments = (basis, read, grid, grid.every_query())
        if again and torch.is_grad_enabled():
            result = checkpoint(part, *arguments, use_reentrant=False, preserve_rng_state=drops(part))
        else:
            result = part(*arguments)
        return result.unflatten(2, grid.queries)

    return output(())


def run(basis: Basis, image: Tensor, part: Part, step: int | None) -> Tensor:
    """The layer by its definition, Eqs. (1) to (8).

    In training, the backward pass computes each of several chunks again, so that memory holds only one at a time.
    """
    keys = basis.padding.pad(image)
    grid, chunks = grid_and_chunks(basis, keys, step)
    output = partial(part, basis, keys, grid)
    if len(chunks) > 1 and torch.is_grad_enabled():
        options: Any = {"use_reentrant": False, "preserve_rng_state": drops(part)}
        pieces = [checkpoint(output, chunk, **options) for chunk in chunks]
    else:
        pieces = [output(chunk) for chunk in chunks]
    return joined(pieces, 2).unflatten(2, grid.queries)


def grid_and_chunks(basis: Basis, keys: Tensor, step: int | None) -> tuple[AttentionGrid, Sequence[Tensor]]:
    """The grid of the padded image `keys`, and its queries in chunks of `step`, or all at once."""
    grid = AttentionGrid(tuple(keys.shape[2:]), basis.sites, keys.device)
    return grid, [grid.every_query()] if step is None else grid.every_query().split(step)


def drops(part: Part) -> bool:
    """Whether a part of the layer draws random numbers, which its second computation must draw again."""
    return bool(part.keywords["dropout"])


def output_of_queries(
    basis: Basis, keys: Tensor, grid: AttentionGrid, queries: Tensor, direct: bool, dropout: float
) -> Tensor:
    """The output at some queries on the padded image `keys`: (batch, d_out, queries).

    If attention does not read the images, one dropout mask serves all of them, as in the authors' code.
    """
    attention = attention_of_queries(basis, keys, grid, queries)
    if dropout:
        attention = F.dropout(attention, dropout)
    mixed = keys.flatten(2) @ attention.flatten(1, 2).mT
    return project(mixed.unflatten(2, attention.shape[1:3]), basis.weights, direct)


def attention_of_queries(basis: Basis, keys: Tensor, grid: AttentionGrid, queries: Tensor) -> Tensor:
    """The attention of some queries, (batch or 1, heads, queries, keys), in the dtype of the image."""
    return cut_softmax(basis.operators.scores(grid, queries, score_dtype(keys.dtype), keys)).to(keys.dtype)


def attention_chunks(basis: Basis, keys: Tensor, step: int | None) -> Iterator[tuple[slice, Tensor]]:
    """The attention on the padded image `keys`, chunk after chunk of `step` queries, or all at once.

    Yields:
        The indices of the queries, and their attention, (batch or 1, heads, queries, keys), in the dtype of the image;
        the softmax is computed in the score dtype.
    """
    grid, chunks = grid_and_chunks(basis, keys, step)
    start = 0
    for queries in chunks:
        yield slice(start, start + queries.shape[0]), attention_of_queries(basis, keys, grid, queries)
        start += queries.shape[0]


def fits(question: Question) -> bool:
    """Whether the attention of the whole call stays under the memory limit, or is computed in boxes."""
    if question.traced or boxes_for(question) is not None:
        return True
    heads, itemsize = question.basis.operators.heads, torch.finfo(question.score_dtype).bits // 8
    return heads * math.prod(question.grid.shape) * itemsize <= question.memory_limit
