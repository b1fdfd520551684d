"""The softmax of quadratic heads along one axis of the grid, banded where it can be, and its application."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F

from conv2attn.attention.call import Call
from conv2attn.attention.encodings import QuadraticEncoding
from conv2attn.attention.hardness import THRESHOLDS
from conv2attn.attention.learned import LearnedEncoding

BAND_COST = 8  # measured: one weighted, shifted pass over the image costs about this many columns of a matrix product


@final
@dataclass(frozen=True, eq=False)
class AxisMixing:
    """One softmax along one axis: row j of `weights` (width, queries) belongs to the displacement `first + j`.

    With `first` None the rows are the keys of the axis themselves.
    """

    weights: Tensor
    first: int | None

    def queries(self, start: int, stop: int) -> "AxisMixing":
        """The same softmax for the queries `start` to `stop`."""
        return AxisMixing(self.weights[:, start:stop], self.first)


def axis_mixings(
    call: Call, encoding: QuadraticEncoding, axis: int, profiles: Mapping[int, tuple[float, float]]
) -> dict[int, AxisMixing]:
    """The softmax along `axis` of each head in `profiles`, which says its alpha and centre there."""
    bands = {head: band(call, axis, *profile) for head, profile in profiles.items()}
    found: dict[int, AxisMixing] = {}
    for width in {len(displacements) for displacements in bands.values()}:
        lows = {head: displacements.start for head, displacements in bands.items() if len(displacements) == width}
        found |= banded_softmax(call, encoding, axis, lows, width)
    return found


def band(call: Call, axis: int, alpha: float, center: float) -> range:
    """Displacements that hold all that have a weight other than 0, in the score dtype, for any query on the grid."""
    side, sites = call.grid.keys[axis], call.grid.queries[axis]
    nearest = call.sites.before[axis]
    farthest = nearest + (sites - 1) * call.sites.stride[axis]
    low, high = -farthest, side - 1 - nearest
    if alpha > 0 and math.isfinite(center):
        radius = math.sqrt((THRESHOLDS[call.score_dtype] + 1) / alpha) + 1
        low = max(low, math.floor(center - radius - max(0.0, farthest + center - (side - 1))))
        high = min(high, math.ceil(center + radius + max(0.0, -nearest - center)))
    return range(low, high + 1)


def banded_softmax(
    call: Call, encoding: QuadraticEncoding, axis: int, lows: Mapping[int, int], width: int
) -> dict[int, AxisMixing]:
    """The softmax of the heads in `lows` over bands of one `width`, which begin at the displacements that it says."""
    side, site, device = call.grid.keys[axis], call.grid.site(axis), encoding.center.device
    heads, displacement = list(lows), torch.tensor(list(lows.values()))[:, None, None] + torch.arange(width)
    key = site[:, None] + displacement
    scores = encoding.axis_scores(displacement, axis, call.score_dtype, heads)
    scores = scores.masked_fill(((key < 0) | (key >= side)).to(device), -math.inf)
    weights = torch.softmax(scores, -1).to(call.image.dtype).mT
    found = {}
    for index, (head, used) in enumerate(zip(heads, weights.detach().ne(0).any(-1).tolist(), strict=True)):
        first, last = used.index(True), width - used[::-1].index(True)
        if (last - first) * BAND_COST < side:
            found[head] = AxisMixing(weights[index, first:last].contiguous(), lows[head] + first)
        else:
            found |= whole_axis(call, encoding, axis, [head])
    return found


def whole_axis(
    call: Call, encoding: QuadraticEncoding | LearnedEncoding, axis: int, heads: Iterable[int]
) -> dict[int, AxisMixing]:
    """The softmax of `heads` along `axis` over all its keys."""
    heads = list(heads)
    scores = encoding.axis_scores(call.grid.displacement(axis), axis, call.score_dtype, heads)
    weights = torch.softmax(scores, -1).to(call.image.dtype).mT
    return {head: AxisMixing(weights[index], None) for index, head in enumerate(heads)}


def mix(image: Tensor, mixing: AxisMixing, dim: int, first_site: int, stride: int, out: Tensor | None = None) -> Tensor:
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
