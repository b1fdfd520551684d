"""The softmax of heads along one axis of the grid, banded where that is cheaper, and its application."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F

from conv2attn.attention.recipe import score_dtype
from conv2attn.basis import AttentionGrid, LearnedSoftmax, Numbers, QuadraticSoftmax, cut_softmax
from conv2attn.basis.operators.softmax import cut_depth

AxisSoftmax = QuadraticSoftmax | LearnedSoftmax
BAND_COST = 16  # measured: one weighted, shifted pass over the image costs about this many columns of a matrix product


@final
@dataclass(frozen=True)
class Band:
    """Displacements `first` to `first + width - 1`, which hold all that one head weighs along an axis."""

    first: int
    width: int


@final
@dataclass(frozen=True, eq=False)
class AxisMixing:
    """One softmax along one axis: row j of `weights` (width, queries) belongs to the displacement `first + j`.

    With `first` None the rows are the keys of the axis themselves.
    """

    weights: Tensor
    first: int | None

    def queries(self, start: int, stop: int) -> "AxisMixing":
        """The softmax along this axis for the queries `start` to `stop`."""
        return AxisMixing(self.weights[:, start:stop], self.first)


def bands_along(
    numbers: Numbers, grid: AttentionGrid, axis: int, heads: Sequence[int], dtype: torch.dtype
) -> list[Band | None]:
    """For each of `heads` the band of its softmax along `axis`, or None where the whole axis is cheaper."""
    found: list[Band | None] = []
    for head in heads:
        band = band_of(grid, axis, numbers.alphas[head], numbers.centers[head][axis], dtype)
        found.append(band if band.width * BAND_COST < grid.keys[axis] else None)
    return found


def band_of(grid: AttentionGrid, axis: int, alpha: float, center: float, dtype: torch.dtype) -> Band:
    """Displacements that hold all that have a weight other than 0, in the score dtype, for any query on the grid.

    The nearest key is at most `apart` from the centre, or as far as the centre is beyond the grid; a key weighs nothing
    where its squared distance exceeds that of the nearest by more than `reach`.
    """
    side, nearest = grid.keys[axis], grid.sites.before[axis]
    farthest = nearest + (grid.queries[axis] - 1) * grid.sites.stride[axis]
    low, high = -farthest, side - 1 - nearest
    if alpha > 0 and math.isfinite(center):
        apart, reach = abs(center - round(center)), (cut_depth(score_dtype(dtype)) + 1) / alpha
        behind, before = farthest + center - (side - 1), -nearest - center
        low = max(low, math.ceil(center - math.sqrt(max(apart, behind) ** 2 + reach)))
        high = min(high, math.floor(center + math.sqrt(max(apart, before) ** 2 + reach)))
    return Band(low, high + 1 - low)


def axis_mixings(
    operators: AxisSoftmax,
    grid: AttentionGrid,
    axis: int,
    bands: Mapping[int, Band | None],
    dtype: torch.dtype,
) -> dict[int, AxisMixing]:
    """The softmax along `axis` of each head in `bands`, in `dtype`."""
    found = whole_axis(operators, grid, axis, [head for head, band in bands.items() if band is None], dtype)
    for width in sorted({band.width for band in bands.values() if band}):
        lows = {head: band.first for head, band in bands.items() if band and band.width == width}
        found |= banded_softmax(operators, grid, axis, lows, width, dtype)
    return found


def banded_softmax(
    operators: AxisSoftmax,
    grid: AttentionGrid,
    axis: int,
    lows: Mapping[int, int],
    width: int,
    dtype: torch.dtype,
) -> dict[int, AxisMixing]:
    """The softmax of the heads in `lows` over bands of one `width`, which begin at the displacements given there."""
    assert isinstance(operators, QuadraticSoftmax)
    starts = torch.tensor(list(lows.values()), device=grid.device)[:, None, None]
    displacement = starts + torch.arange(width, device=grid.device)
    key = grid.site(axis)[:, None] + displacement
    scores = operators.axis_scores(displacement, axis, score_dtype(dtype), list(lows))
    scores = scores.masked_fill((key < 0) | (key >= grid.keys[axis]), -math.inf)
    weights = cut_softmax(scores).to(dtype).mT.contiguous()
    return {head: AxisMixing(weights[index], first) for index, (head, first) in enumerate(lows.items())}


def whole_axis(
    operators: AxisSoftmax, grid: AttentionGrid, axis: int, heads: list[int], dtype: torch.dtype
) -> dict[int, AxisMixing]:
    """The softmax of `heads` along `axis` over all its keys."""
    if not heads:
        return {}
    weights = axis_attention(operators, grid, axis, heads, dtype).mT
    return {head: AxisMixing(weights[index], None) for index, head in enumerate(heads)}


def axis_attention(
    operators: AxisSoftmax, grid: AttentionGrid, axis: int, heads: list[int], dtype: torch.dtype
) -> Tensor:
    """The softmax of `heads` along `axis` over all its keys: (heads, queries, keys) of that axis."""
    if isinstance(operators, QuadraticSoftmax):
        every = None if heads == list(range(operators.heads)) else heads
        scores = operators.axis_scores(grid.displacement(axis), axis, score_dtype(dtype), every)
    else:
        scores = operators.axis_scores(grid, axis, score_dtype(dtype))
    return cut_softmax(scores).to(dtype)


def mix(image: Tensor, mixing: AxisMixing, dim: int, first_site: int, stride: int) -> Tensor:
    """`image` mixed along `dim` by one softmax whose first query stands at `first_site`."""
    behind = image.ndim - 1 - dim
    if mixing.first is None:
        if not behind:
            return image @ mixing.weights
        return (mixing.weights.mT @ image.flatten(dim + 1)).unflatten(-1, image.shape[dim + 1 :])
    start, (width, count) = first_site + mixing.first, mixing.weights.shape
    span = (count - 1) * stride + 1
    before, after = max(0, -start), max(0, start + span + width - 1 - image.shape[dim])
    if before or after:
        image = F.pad(image, [0, 0] * behind + [before, after])
    total: Tensor | None = None
    for j, weights in enumerate(mixing.weights.unflatten(1, (count, *[1] * behind))):
        first = start + before + j
        seen = image[(slice(None),) * dim + (slice(first, first + span, stride),)]
        total = seen * weights if total is None else torch.addcmul(total, seen, weights)
    assert total is not None
    return total
