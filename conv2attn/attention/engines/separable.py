"""The softmax of an axis-aligned quadratic head over a box is the outer product of one softmax an axis: mix rows,
then columns. Exact for every alpha and every real centre, borders included: claim L2d of proofs/.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F

from conv2attn.attention.call import Call
from conv2attn.attention.encodings import QuadraticEncoding
from conv2attn.attention.engines.channels import project
from conv2attn.attention.engines.gather import rows_per_slab
from conv2attn.bounds import one_hot_threshold

BAND_COST = 8  # measured: one weighted, shifted pass over the image costs about this many columns of a matrix product


@final
@dataclass(frozen=True, eq=False)
class AxisMixing:
    """One softmax along one axis: column j of `weights` (queries, width) belongs to the displacement `first + j`.

    With `first` None the columns are the keys of the axis themselves.
    """

    weights: Tensor
    first: int | None

    def rows(self, start: int, stop: int) -> "AxisMixing":
        """The same softmax for the queries `start` to `stop`."""
        return AxisMixing(self.weights[start:stop], self.first)


def prepare(call: Call) -> Callable[[], Tensor] | str:
    """Ready to run for a quadratic encoding alone, else why not."""
    if call.layer.has_content:
        return "its attention depends on the content"
    encoding = call.layer.encoding
    if not isinstance(encoding, QuadraticEncoding):
        return "its scores are not a sum over the axes"
    return lambda: run(call, encoding)


def run(call: Call, encoding: QuadraticEncoding) -> Tensor:
    """The layer in slabs of rows under the memory limit; heads that share an axis profile share its mixing."""
    profiles = [distinct(encoding, axis) for axis in range(encoding.dimensions)]
    mixings = [
        {head: mixing(call, encoding, axis, head) for head in sorted(set(profile))}
        for axis, profile in enumerate(profiles)
    ]
    paths = list(zip(*profiles, strict=True))
    rows, *others = call.grid.queries
    slab = rows_per_slab(call, math.prod(others) * len(paths))
    pieces = []
    for start in range(0, rows, slab):
        first = {head: whole.rows(start, start + slab) for head, whole in mixings[0].items()}
        pieces.append(project(mix_heads(call, [first, *mixings[1:]], paths, start), call.weights))
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, 2)


def distinct(encoding: QuadraticEncoding, axis: int) -> list[int]:
    """For each head the first head with the same alpha and centre along `axis`; itself where these are trained."""
    if torch.is_grad_enabled() and (encoding.alpha.requires_grad or encoding.center.requires_grad):
        return list(range(encoding.heads))
    seen: dict[tuple[float, float], int] = {}
    pairs = zip(encoding.alpha.tolist(), encoding.center[:, axis].tolist(), strict=True)
    return [seen.setdefault(pair, head) for head, pair in enumerate(pairs)]


def mixing(call: Call, encoding: QuadraticEncoding, axis: int, head: int) -> AxisMixing:
    """The softmax of `head` along `axis`: only the band of displacements outside which every weight is exactly 0."""
    alpha, center = encoding.alpha[head].item(), encoding.center[head, axis].item()
    side, site = call.grid.keys[axis], call.grid.site(axis)
    low, high = -int(site[-1]), side - 1 - int(site[0])
    if alpha > 0 and math.isfinite(center):
        threshold = one_hot_threshold("float64" if call.score_dtype == torch.float64 else "float32")
        radius = math.sqrt((threshold + 1) / alpha) + 1
        low = max(low, math.floor(center - radius - max(0.0, int(site[-1]) + center - (side - 1))))
        high = min(high, math.ceil(center + radius + max(0.0, -int(site[0]) - center)))
    banded = (high - low + 1) * BAND_COST < side
    displacement = torch.arange(low, high + 1).expand(len(site), -1) if banded else call.grid.displacement(axis)
    scores = encoding.axis_scores(displacement, axis, call.score_dtype, head)
    if not banded:
        return AxisMixing(torch.softmax(scores, -1).to(call.image.dtype), None)
    key = site[:, None] + displacement
    scores = scores.masked_fill(((key < 0) | (key >= side)).to(scores.device), -math.inf)
    weights = torch.softmax(scores, -1).to(call.image.dtype)
    used = weights.detach().ne(0).any(0).nonzero().flatten().tolist()
    return AxisMixing(weights[:, used[0] : used[-1] + 1], low + used[0])


def mix_heads(call: Call, mixings: list[dict[int, AxisMixing]], paths: list[tuple[int, ...]], start: int) -> Tensor:
    """The mixed tokens of all heads, (batch, d_in, heads, *queries): the axes in turn, shared prefixes only once.

    `start` is the row of the first query; the first axis of `mixings` holds only the rows of this slab.
    """
    images: dict[tuple[int, ...], Tensor] = {(): call.padded}
    for axis, choices in enumerate(mixings):
        first = call.sites.before[axis] + (start * call.sites.stride[axis] if axis == 0 else 0)
        stride, last = call.sites.stride[axis], axis == len(mixings) - 1
        steps = paths if last else list(dict.fromkeys(path[: axis + 1] for path in paths))
        parts = [mix(images[step[:-1]], choices[step[-1]], 2 + axis, first, stride) for step in steps]
        if last:
            return torch.stack(parts, 2)
        images = dict(zip(steps, parts, strict=True))
    raise AssertionError("a grid has at least one axis")


def mix(image: Tensor, mixing: AxisMixing, dim: int, first_site: int, stride: int) -> Tensor:
    """`image` mixed along `dim` by one softmax whose first query stands at `first_site`."""
    count = len(mixing.weights)
    if mixing.first is None:
        columns = mixing.weights @ image.reshape(*image.shape[: dim + 1], math.prod(image.shape[dim + 1 :]))
        return columns.reshape(*image.shape[:dim], count, *image.shape[dim + 1 :])
    start, width = first_site + mixing.first, mixing.weights.shape[1]
    stop = start + (count - 1) * stride + width
    before, after = max(0, -start), max(0, stop - image.shape[dim])
    if before or after:
        image = F.pad(image, [0, 0] * (image.ndim - 1 - dim) + [before, after])
    total: Tensor | None = None
    for j in range(width):
        seen = image.narrow(dim, start + before + j, (count - 1) * stride + 1)
        if stride > 1:
            seen = seen[(slice(None),) * dim + (slice(None, None, stride),)]
        term = seen * mixing.weights[:, j].reshape(-1, *[1] * (image.ndim - 1 - dim))
        total = term if total is None else total + term
    assert total is not None
    return total
