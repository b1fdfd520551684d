"""The attention of one of our own layers, from its parameters alone: the ideal operator on its padded keys."""

import math
import operator
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from conv2attn.attention import MultiHeadSelfAttention, hard_offsets
from conv2attn.basis import AttentionGrid, QuadraticSoftmax, Sides, cut_softmax
from conv2attn.errors import UsageError
from conv2attn.span.conditions.limits import ROUNDOFF, ULPS
from conv2attn.span.conditions.problem import AttentionRows, Piece
from conv2attn.span.sources.ideal import rational_rows
from conv2attn.span.sources.one_hot import keys_read
from conv2attn.span.sources.reading import MEMORY_LIMIT, rows_at_once

SCORE_ROUNDINGS = 5
"""Roundings of a quadratic score: displacement from its centre, square, sum over axes, alpha, subtraction."""


def check_ours(layer: object) -> None:
    """Refuses what is no layer of ours, whose values and outputs could be read or replaced.

    Raises:
        UsageError: it is not (C2A502).
    """
    if not isinstance(layer, MultiHeadSelfAttention):
        raise UsageError("C2A502", f"a {type(layer).__name__} is no MultiHeadSelfAttention", "Pass such a layer.")


def read_layer(name: str, layer: MultiHeadSelfAttention, sides: Sides, memory_limit: int) -> AttentionRows:
    """The rows of a layer whose attention does not depend on the image, for inputs with these sides.

    Hard heads are taken as their dtype computes them, one-hot; others as the softmax in float64, whose uncertainty is
    taken to be that of the layer's dtype.

    Raises:
        UsageError: the attention depends on the image (C2A502), or the scores of one axis exceed the memory (C2A202).
    """
    if layer.has_content:
        raise UsageError(
            "C2A502",
            f"{name}: its attention depends on the image, so that its parameters alone do not say what it attends to",
            "Pass the attention on given images, layer.attention(images), or ask for positions alone.",
        )
    call_sites = layer.sites if layer.stride_by == "queries" else layer.sites.without_stride()
    grid = AttentionGrid(layer.padding.sides(sides), call_sites)
    least, allowed = 8 * max(map(operator.mul, grid.queries, grid.keys)), max(memory_limit, MEMORY_LIMIT)
    if least > allowed:
        raise UsageError(
            "C2A202",
            f"{name}: {'x'.join(map(str, grid.keys))} keys have scores of {least:,} bytes an axis, over {allowed:,}",
            "Name a smaller grid, or raise memory_limit (--memory-limit).",
        )
    dtype, operators = layer.like.dtype, layer.encoding.operators()
    hard = not isinstance(hard_offsets(operators, dtype), str)
    precise = dtype if hard else torch.float64
    grid = replace(grid, device=layer.like.device)
    queries, keys = grid.shape
    step = rows_at_once(layer.heads, keys, memory_limit)

    @torch.no_grad()
    def pieces() -> Iterator[Piece]:
        for start in range(0, queries, step):
            rows = torch.arange(start, min(start + step, queries))
            scored = operators.scores(grid, rows, torch.float32 if hard and dtype != torch.float64 else precise)[0]
            block = cut_softmax(scores_on_cpu(scored)).to(precise).double().numpy()
            yield 0, slice(start, start + len(rows)), block

    notes = ["from parameters, positions alone: its relative encoding"]
    if grid.keys != tuple(sides):
        notes.append(f"judged on its padded keys, {'x'.join(map(str, grid.keys))}")
    hot = keys_read(layer.encoding, grid, dtype)
    if hot is None and hard and all(bool(((b == 0) | (b == 1)).all()) for _, _, b in pieces()):
        hot = np.concatenate([block.argmax(-1) for _, _, block in pieces()], axis=1)
    one_hot = hot is not None
    return AttentionRows(
        name,
        layer.heads,
        1,
        grid,
        ROUNDOFF[str(dtype).removeprefix("torch.")],
        0 if one_hot else ULPS + lost_in_scores(layer, grid, step, ROUNDOFF[str(dtype).removeprefix("torch.")]),
        pieces,
        one_hot=one_hot,
        rational=None if hard else rational_rows(layer, grid),
        d_head=layer.d_head,
        hot=None if hot is None else hot[None],
        notes=tuple(notes),
    )


@torch.no_grad()
def lost_in_scores(layer: MultiHeadSelfAttention, grid: AttentionGrid, step: int, roundoff: float) -> int:
    """Ulps of a weight that rounding its score in float64 costs: `exp` turns what a score is off by into a share.

    A score is off by its size times a few roundings, that of the softmax's subtraction among them.
    """
    operators = layer.encoding.operators()
    if isinstance(operators, QuadraticSoftmax):
        parts = (operators.axis_scores(grid.displacement(a), a, torch.float64) for a in range(layer.dimensions))
        largest = float(torch.stack([part.abs().amax((1, 2)) for part in parts]).sum(0).max())
        return math.ceil(SCORE_ROUNDINGS * largest * ROUNDOFF["float64"] / roundoff)
    starts = range(0, grid.shape[0], step)
    chunks = (torch.arange(start, min(start + step, grid.shape[0])) for start in starts)
    largest = max(float(operators.scores(grid, rows, torch.float64).abs().max()) for rows in chunks)
    return math.ceil(SCORE_ROUNDINGS * largest * ROUNDOFF["float64"] / roundoff)


def scores_on_cpu(scores: torch.Tensor) -> torch.Tensor:
    """Scores on the processor, where numpy can see them."""
    return scores.detach().cpu()
