"""The softmax over a box of scores that are a sum over the axes is the outer product of one softmax an axis: mix rows,
then columns. Exact for every alpha and every real centre, and for learned positions, borders included: claim L2d.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from conv2attn.attention.call import Call
from conv2attn.attention.encodings import EnumeratedEncoding, QuadraticEncoding
from conv2attn.attention.engines.axis_mixing import AxisMixing, axis_mixings, mix, whole_axis
from conv2attn.attention.engines.channels import project
from conv2attn.attention.engines.gather import rows_per_slab
from conv2attn.attention.learned import LearnedEncoding


def prepare(call: Call) -> Callable[[], Tensor] | str:
    """Ready to run for quadratic or learned positions alone, else why not."""
    if call.layer.has_content:
        return "its attention depends on the content"
    encoding = call.layer.encoding
    if isinstance(encoding, EnumeratedEncoding):
        return "its scores are not a sum over the axes"
    return lambda: run(call, *mixings_of(call, encoding))


def mixings_of(
    call: Call, encoding: QuadraticEncoding | LearnedEncoding
) -> tuple[list[dict[int, AxisMixing]], list[tuple[int, ...]]]:
    """The softmaxes along each axis, and for each head which of them it takes; equal profiles share one."""
    if isinstance(encoding, LearnedEncoding):
        mixings = [whole_axis(call, encoding, axis, range(encoding.heads)) for axis in range(encoding.dimensions)]
        return mixings, [(head,) * encoding.dimensions for head in range(encoding.heads)]
    alphas, centers = encoding.alpha.tolist(), encoding.center.mT.tolist()
    trained = torch.is_grad_enabled() and (encoding.alpha.requires_grad or encoding.center.requires_grad)
    steps, mixings = [], []
    for axis, center in enumerate(centers):
        profiles = list(zip(alphas, center, strict=True))
        step = list(range(encoding.heads)) if trained else [profiles.index(profile) for profile in profiles]
        mixings.append(axis_mixings(call, encoding, axis, {head: profiles[head] for head in step}))
        steps.append(step)
    return mixings, list(zip(*steps, strict=True))


def run(call: Call, mixings: Sequence[dict[int, AxisMixing]], paths: Sequence[tuple[int, ...]]) -> Tensor:
    """The layer in slabs of rows under the memory limit."""
    rows, *others = call.grid.queries
    slab = rows_per_slab(call, math.prod(others) * len(paths))
    pieces = []
    for start in range(0, rows, slab):
        first = {head: whole.queries(start, start + slab) for head, whole in mixings[0].items()}
        pieces.append(project(mix_heads(call, [first, *mixings[1:]], paths, start), call.weights))
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, 2)


def mix_heads(
    call: Call, mixings: Sequence[dict[int, AxisMixing]], paths: Sequence[tuple[int, ...]], start: int
) -> Tensor:
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
