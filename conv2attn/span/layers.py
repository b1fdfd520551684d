"""The attention of a layer of this project, computed from its parameters on its padded keys."""

import math
import operator
from collections.abc import Callable

import numpy as np
import torch

from conv2attn.arguments import check_has_numbers
from conv2attn.errors import UsageError
from conv2attn.layers.attention import MultiHeadSelfAttention, hard_offsets
from conv2attn.layers.attention.hardness import first_stray
from conv2attn.span.arrays import MEMORY_LIMIT, rows_at_once
from conv2attn.span.attention_rows import ROUNDOFF, ULPS, Array, AttentionRows, Whole
from conv2attn.theory.basis import (
    AttentionGrid,
    Offset,
    Positions,
    QuadraticSoftmax,
    Sides,
    cut_softmax,
    isotropic,
    moved_to,
)

SCORE_ROUNDINGS = 5
"""Roundings of a quadratic score: the displacement from its centre, the square, the sum over axes, the product with
alpha, and the subtraction of the softmax. The relative error of a weight is at most this many roundoffs times the
absolute value of its score."""


def check_ours(layer: object) -> None:
    """Refuses modules other than `MultiHeadSelfAttention`, whose values and outputs can be read and replaced.

    Raises:
        UsageError: `layer` is of another class (C2A502), or its parameters have no numbers (C2A006).
    """
    if not isinstance(layer, MultiHeadSelfAttention):
        raise UsageError("C2A502", f"{type(layer).__name__} is not a MultiHeadSelfAttention", "Pass such a layer.")
    check_has_numbers(layer, "layer")


def read_layer(name: str, layer: MultiHeadSelfAttention, sides: Sides, memory_limit: int) -> AttentionRows:
    """The rows of a layer whose attention does not depend on the image, for inputs with these sides.

    Hard heads are one-hot, as the layer's dtype computes them. Other heads are computed by a softmax in float64, and
    have the uncertainty of the layer's dtype.

    Raises:
        UsageError: the attention depends on the image (C2A502), the number of sides is not that of the layer's axes
            (C2A503), its scores are not finite (C2A408), or the scores of one axis exceed the memory limit (C2A202).
    """
    if layer.has_content:
        raise UsageError(
            "C2A502",
            f"{name}: its attention depends on the image, so its parameters alone do not determine it",
            "Pass the attention on given images, layer.attention(images), or ask for positions alone.",
        )
    if len(sides) != layer.dimensions:
        mismatch = f"{name}: a grid {'x'.join(map(str, sides))} does not have {layer.dimensions} axes"
        raise UsageError("C2A503", mismatch, "Pass one side for each axis with --grid.")
    # A layer that strides by its output computes attention at every pixel, and leaves out some outputs afterwards.
    call_sites = layer.sites if layer.stride_by == "queries" else layer.sites.without_stride()
    grid = AttentionGrid(layer.image_padding.sides(sides), call_sites)
    # Every order of evaluation holds at least the scores of one axis at once.
    least, allowed = 8 * max(map(operator.mul, grid.queries, grid.keys)), max(memory_limit, MEMORY_LIMIT)
    if least > allowed:
        raise UsageError(
            "C2A202",
            f"{name}: {'x'.join(map(str, grid.keys))} keys have scores of {least:,} bytes per axis, over {allowed:,}",
            "Name a smaller grid, or raise --memory-limit.",
        )
    dtype, operators = layer.like.dtype, moved_to(layer.positions, "cpu")
    hard = not isinstance(hard_offsets(operators, dtype), str)
    # Hard heads are one-hot by underflow of their own dtype. In float64 the same heads would leak.
    precise = dtype if hard else torch.float64
    queries, keys = grid.shape
    step = rows_at_once(layer.heads, keys, memory_limit)

    # As in the layer, scores of half formats are computed in float32: half formats count exactly to 256 or 2048 only.
    computed_in = torch.float32 if hard and dtype != torch.float64 else precise
    axes = None if (quadratic := isotropic(operators)) is None else softmax_by_axis(quadratic, grid)

    @torch.no_grad()
    def read(_: int, wanted: Whole) -> Array:
        if axes is not None and not hard:
            return outer_product(axes, grid, wanted)
        scored = operators.scores(grid, torch.from_numpy(wanted), computed_in)[0]
        block: Array = cut_softmax(scored).to(precise).double().numpy()
        return block

    notes = ["from parameters, positions alone: its relative encoding"]
    if grid.keys != tuple(sides):
        notes.append(f"checked on its padded keys, {'x'.join(map(str, grid.keys))}")
    # If the offsets of hard heads determine the keys that they read, no attention is computed. Otherwise rows are read.
    hot = keys_read(operators, grid, dtype)
    if hot is None and hard:
        hot = read_if_one_hot(read, queries, step)
    one_hot = hot is not None
    largest = 0.0 if one_hot else largest_score(operators, grid, step)
    if not (one_hot or (largest < math.inf and np.isfinite(read(0, np.array([0]))).all())):
        keys_in_words = "x".join(map(str, grid.keys))
        raise UsageError(
            "C2A408", f"{name}: its scores on {keys_in_words} keys are not finite", "Train or load it again."
        )
    roundoff = ROUNDOFF[str(dtype).removeprefix("torch.")]
    # Every axis after the first adds the error of its own softmax, and of one product.
    factors = 0 if axes is None else (len(axes) - 1) * (ULPS + 1)
    # An error e of a score is a relative error e of its weight. Scores are computed in float64 here, and their rounding
    # grows with their size.
    lost_in_scores = math.ceil((SCORE_ROUNDINGS * largest + factors) * ROUNDOFF["float64"] / roundoff)
    return AttentionRows(
        name,
        layer.heads,
        1,
        grid,
        roundoff,
        0 if one_hot else ULPS + lost_in_scores,
        read,
        step,
        by_position=True,
        one_hot=one_hot,
        d_head=layer.d_head,
        hot=None if hot is None else hot[None],
        axes=axes,
        notes=tuple(notes),
    )


@torch.no_grad()
def largest_score(operators: Positions, grid: AttentionGrid, step: int) -> float:
    """The largest absolute score in float64; NaN if a score is NaN."""
    # A quadratic score is a sum over axes of terms of one sign, so the largest terms of the axes add up to the largest
    # score.
    if (quadratic := isotropic(operators)) is not None:
        parts = (quadratic.axis_scores(grid.displacement(a), a, torch.float64) for a in range(operators.dimensions))
        return float(torch.stack([part.abs().amax((1, 2)) for part in parts]).sum(0).max())
    starts = range(0, grid.shape[0], step)
    chunks = (torch.arange(start, min(start + step, grid.shape[0])) for start in starts)
    return float(torch.stack([operators.scores(grid, rows, torch.float64).abs().max() for rows in chunks]).max())


def read_if_one_hot(read: Callable[[int, Whole], Array], queries: int, step: int) -> Whole | None:
    """The key that every head reads at every query, (heads, queries); None if a row of attention is not one-hot."""
    keys = []
    for start in range(0, queries, step):
        block = read(0, np.arange(start, min(start + step, queries)))
        if not bool(((block == 0) | (block == 1)).all()):
            return None
        keys.append(block.argmax(-1))
    return np.concatenate(keys, axis=1)


@torch.no_grad()
def softmax_by_axis(operators: QuadraticSoftmax, grid: AttentionGrid) -> tuple[Array, ...]:
    """The softmax of each axis in float64, (heads, queries, keys); a row of attention is their outer product.

    As in `cut_softmax`, small weights are set to 0, so that neither weights nor products over the axes are subnormal.
    """
    parts = (operators.axis_scores(grid.displacement(a), a, torch.float64) for a in range(len(grid.keys)))
    # Products of subnormal weights are slow, and lose digits that the bound on rounding assumes.
    least = np.finfo(float).tiny ** (1 / len(grid.keys))
    return tuple(np.where((weights := cut_softmax(part).numpy()) < least, 0.0, weights) for part in parts)


def outer_product(axes: tuple[Array, ...], grid: AttentionGrid, wanted: Whole) -> Array:
    """The rows of some queries, (heads, queries, keys), from the softmax of each axis.

    The softmax of a sum over axes is the product of the softmaxes (claim L2d).
    """
    along = grid.coordinates(torch.from_numpy(wanted))
    # Rows are read once per pass. The tables of the axes save one exponential per pair of a query and a key.
    rows, *others = (torch.from_numpy(profile)[:, index] for profile, index in zip(axes, along, strict=True))
    for profile in others:
        rows = (rows[..., None] * profile[..., None, :]).flatten(2)
    block: Array = rows.numpy()
    return block


def keys_read(operators: Positions, grid: AttentionGrid, dtype: torch.dtype) -> Whole | None:
    """The key that each head reads at each query, (heads, queries); None if the offsets do not determine it.

    Hard heads whose targets are all on the grid are bitwise one-hot on them. For a target beyond the grid, quadratic
    heads read the nearest key of the box, one axis at a time (E8 of docs/errata.md): the squared distance of every
    other key is larger by at least 1. If no score is rounded, the weight of every other key is 0. Scores are not
    rounded if alpha is a power of two and the largest square fits the significand.
    """
    offsets = hard_offsets(operators, dtype)
    if isinstance(offsets, str):
        return None
    # For a target off the grid, rounded scores might not distinguish the nearest key from its neighbours.
    if first_stray(grid, offsets) is not None and not scores_are_exact(operators, grid, offsets, dtype):
        return None
    # Row-major numbers of keys, built one axis at a time. The clip gives the nearest key of the box.
    read = np.zeros((len(offsets), 1), dtype=np.int64)
    for axis, side in enumerate(grid.keys):
        along = np.array([offset[axis] for offset in offsets])[:, None] + grid.site(axis).numpy()
        read = (read[:, :, None] * side + np.clip(along, 0, side - 1)[:, None]).reshape(len(offsets), -1)
    return read


def scores_are_exact(
    operators: Positions, grid: AttentionGrid, offsets: tuple[Offset, ...], dtype: torch.dtype
) -> bool:
    """Whether no score of quadratic heads is rounded on this grid."""
    heads = isotropic(operators)
    if heads is None or not bool((torch.frexp(heads.alpha)[0] == 0.5).all()):
        return False
    # Products of a power of two with integers are exact while the integers fit the significand. Half formats count as
    # float32, in which their scores are computed.
    farthest = sum(max(side + abs(offset[a]) for offset in offsets) ** 2 for a, side in enumerate(grid.keys))
    return farthest < (2**53 if dtype == torch.float64 else 2**24)
