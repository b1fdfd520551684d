"""Compiles hard heads whose offsets form a lattice back to torch's convolution, transposed or not."""

from dataclasses import dataclass
from functools import partial
from typing import final

import torch
from torch import Tensor

from conv2attn.layers.attention.engines.channels import with_flat_positions
from conv2attn.layers.attention.lattice import Lattice
from conv2attn.layers.attention.recipe import Evaluation, Question
from conv2attn.layers.attention.storage import output_format, stored
from conv2attn.theory.basis import Basis, Offset


@final
@dataclass(frozen=True)
class Frame:
    """The paddings with which torch computes a layer: zeros to add, or, if transposed, outputs to leave out.

    Args:
        before: the amount at both ends of each axis: zeros to add, or, if transposed, outputs to leave out.
        behind: if transposed, how many of those outputs are kept at the end of each axis; otherwise 0.
        transposed: whether it is a transposed convolution, whose stride is the spacing of the pixels.
    """

    before: Offset
    behind: Offset
    transposed: bool


def decide(question: Question) -> Evaluation | str:
    """The recipe if the layer is a convolution on its padded grid, otherwise the reason why not."""
    offsets = question.offsets()
    if isinstance(offsets, str):
        return offsets
    if question.facts.lattice is None:
        return "its offsets do not form a lattice, each point once"
    if stray := question.stray(offsets):
        return stray
    return partial(run, points=question.facts.lattice, frame=frame_of(question.basis, question.facts.lattice))


def run(basis: Basis, image: Tensor, points: Lattice, frame: Frame | None) -> Tensor:
    """The layer as one convolution; the convolution adds padding and stuffed zeros itself if it can."""
    none, keys = (0,) * len(points.first), image
    if frame is None:
        keys, frame = cropped(basis, image, points), Frame(none, none, False)
    stride = basis.padding.spacing if frame.transposed else basis.sites.stride
    kernel = basis.weights.kernel(points.kernel_size, None if points.in_order else points.order, frame.transposed)
    read = plainly_stored(keys), plainly_stored(kernel)
    bias, groups = basis.weights.bias, basis.weights.groups
    result = torch.convolution(
        *read, bias, stride, frame.before, points.dilation, frame.transposed, frame.behind, groups
    )
    # A copy of the operands may have changed the memory format of the result, which must be that of the convolution.
    if image.ndim == 4 and (read[0] is not image or read[1] is not kernel):
        result = stored(result, output_format(basis, image))
    return with_flat_positions(result, basis.operators)


def plainly_stored(tensor: Tensor) -> Tensor:
    """`tensor`, with its last axis innermost if the CPU computes in bfloat16.

    With channels innermost, oneDNN (torch 2.13) reads beyond the image for some strides and dilations, which gives
    noise or crashes.
    """
    if tensor.dtype != torch.bfloat16 or tensor.device.type != "cpu":
        return tensor
    if not torch.compiler.is_compiling() and tensor.stride() == tensor.new_empty(tensor.shape, device="meta").stride():
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def spans_and_starts(basis: Basis, points: Lattice) -> tuple[list[int], list[int]]:
    """For each axis, the distance from the first tap to the last, and the key at the first query's first tap."""
    spans = [d * (k - 1) for d, k in zip(points.dilation, points.kernel_size, strict=True)]
    return spans, [b + first for b, first in zip(basis.sites.before, points.first, strict=True)]


def frame_of(basis: Basis, points: Lattice) -> Frame | None:
    """The frame of the layer on its image, or None if the padded keys must be built."""
    (spans, starts), padding, sites = spans_and_starts(basis, points), basis.padding, basis.sites
    # With zeros around it and a whole kernel at each query, the convolution can do its padding itself.
    none = (0,) * len(spans)
    stuffed = max(padding.spacing) > 1
    if padding.mode == "zeros" and max(sites.stride) == 1 and (stuffed or basis.weights.transposed):
        return transposed_frame(basis, points)
    if stuffed:
        return None
    whole = not any(starts) and all(span == b + a for span, b, a in zip(spans, sites.before, sites.after, strict=True))
    plain = padding.mode == "zeros" and min(padding.before) >= 0 and padding.before == padding.after
    return Frame(padding.before, none, False) if whole and plain else None


def transposed_frame(basis: Basis, points: Lattice) -> Frame | None:
    """The frame of zero-stuffed keys: at output o tap t reads key `o + start + d t`, pixel i is key `before + s i`.

    So output o has the index `o + start - before + d (K - 1)` among all outputs `s i + d t`.
    """
    (spans, starts), padding, sites = spans_and_starts(basis, points), basis.padding, basis.sites
    front = [start - before + span for start, before, span in zip(starts, padding.before, spans, strict=True)]
    # `front` and `back` are outputs of the full transposed convolution to leave out at both ends. torch leaves out
    # equal amounts, and adds the difference by `output_padding`.
    back = [
        span - before - after + s_before + s_after - f
        for span, before, after, s_before, s_after, f in zip(
            spans, padding.before, padding.after, sites.before, sites.after, front, strict=True
        )
    ]
    behind = [f - b for f, b in zip(front, back, strict=True)]
    most = map(max, padding.spacing, points.dilation)
    fits = min(front) >= 0 and all(0 <= e < m for e, m in zip(behind, most, strict=True))
    return Frame(tuple(front), tuple(behind), True) if fits else None


def cropped(basis: Basis, image: Tensor, points: Lattice) -> Tensor:
    """The keys without those at either end that no tap reads at stride 1: constant amounts, at every size."""
    keys, (spans, starts), sites = basis.padding.pad(image), spans_and_starts(basis, points), basis.sites
    for axis, (start, span) in enumerate(zip(starts, spans, strict=True)):
        behind = max(sites.before[axis] + sites.after[axis] - start - span, 0)
        if start or behind:
            keys = keys.narrow(2 + axis, start, keys.shape[2 + axis] - start - behind)
    return keys
