"""The attention of one of our own layers, from its parameters alone: the ideal operator on its padded keys."""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache

import numpy as np
import torch

from conv2attn.attention import LearnedEncoding, MultiHeadSelfAttention, QuadraticEncoding, hard_offsets
from conv2attn.basis import AttentionGrid, Sides
from conv2attn.errors import UsageError
from conv2attn.span.limits import ROUNDOFF, ULPS
from conv2attn.span.one_hot import keys_read
from conv2attn.span.problem import AttentionRows, Piece
from conv2attn.span.reading import rows_at_once


def read_layer(name: str, layer: MultiHeadSelfAttention, sides: Sides, memory_limit: int) -> AttentionRows:
    """The rows of a layer whose attention does not depend on the image, for inputs with these sides.

    Hard heads are taken as their dtype computes them, one-hot; others as the softmax in float64, whose uncertainty is
    taken to be that of the layer's dtype.

    Raises:
        UsageError: the attention depends on the image (C2A502).
    """
    if layer.has_content:
        raise UsageError(
            "C2A502",
            f"{name}: its attention depends on the image, so that its parameters alone do not say what it attends to",
            "Pass the attention on given images, layer.attention(images), or ask for positions alone.",
        )
    call_sites = layer.sites if layer.stride_by == "queries" else layer.sites.without_stride()
    grid = AttentionGrid(layer.padding.sides(sides), call_sites)
    dtype = next((w.dtype for w in (layer.output, layer.value) if w is not None), torch.float32)
    hard = not isinstance(hard_offsets(layer.encoding, dtype), str)
    precise = dtype if hard else torch.float64
    queries, keys = grid.shape
    step = rows_at_once(layer.heads, keys, memory_limit)

    @torch.no_grad()
    def pieces() -> Iterator[Piece]:
        for start in range(0, queries, step):
            rows = torch.arange(start, min(start + step, queries))
            scored = layer.encoding.scores(grid, rows, torch.float32 if hard and dtype != torch.float64 else precise)
            block = torch.softmax(scores_on_cpu(scored), -1).to(precise).double().numpy()
            yield 0, slice(start, start + len(rows)), block

    notes = ["from parameters, positions alone: its relative encoding"]
    if grid.keys != tuple(sides):
        notes.append(f"judged on its padded keys, {'x'.join(map(str, grid.keys))}")
    hot = keys_read(layer.encoding, grid, dtype)
    one_hot = hot is not None or (hard and all(bool(((b == 0) | (b == 1)).all()) for _, _, b in pieces()))
    return AttentionRows(
        name,
        layer.heads,
        1,
        grid,
        ROUNDOFF[str(dtype).removeprefix("torch.")],
        0 if one_hot else ULPS,
        pieces,
        one_hot=one_hot,
        rational=None if hard else rational_rows(layer, grid),
        d_head=layer.d_head,
        hot=None if hot is None else hot[None],
        notes=tuple(notes),
    )


def scores_on_cpu(scores: torch.Tensor) -> torch.Tensor:
    """The same where numpy can see it."""
    return scores.detach().cpu()


def rational_rows(layer: MultiHeadSelfAttention, grid: AttentionGrid) -> Callable[[int, int], list[Fraction]] | None:
    """The ideal row of (head, query) where alpha is the float nearest to m ln 2 and centres are integers, else None.

    Its weights are `2^(-m |delta - center|^2)` over their sum.
    """
    encoding = layer.encoding
    if isinstance(encoding, LearnedEncoding) or not isinstance(encoding, QuadraticEncoding):
        return None
    alphas, centers = encoding.alpha.detach().double(), encoding.center.detach().double()
    powers = (alphas / math.log(2)).round()
    nearest = (powers * math.log(2)).to(encoding.alpha.dtype).double()
    if not (torch.equal(nearest, alphas) and torch.equal(centers, centers.round()) and bool((powers > 0).all())):
        return None
    exponents = [int(m) for m in powers]

    @lru_cache(maxsize=4096)
    def row(head: int, query: int) -> list[Fraction]:
        at = [int(i) for i in np.unravel_index(query, grid.queries)]
        squares = np.zeros(1, dtype=object)
        for axis, place in enumerate(at):
            away = grid.displacement(axis)[place].numpy().astype(object) - int(centers[head, axis])
            squares = (squares[:, None] + (away * away)[None, :]).reshape(-1)
        least = min(squares)
        weights = [Fraction(1, 1 << (exponents[head] * int(s - least))) for s in squares]
        whole = sum(weights, Fraction(0))
        return [weight / whole for weight in weights]

    return row
