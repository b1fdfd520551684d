"""Hard heads whose offsets form a lattice, compiled back to the convolution of torch."""

from functools import partial

import torch
from torch import Tensor

from conv2attn.attention.engines.channels import with_flat_positions
from conv2attn.attention.lattice import Lattice
from conv2attn.attention.recipe import Question, Run
from conv2attn.basis import Basis, Offset


def decide(question: Question) -> Run | str:
    """The recipe if the layer is a convolution on its padded grid, otherwise why not."""
    offsets = question.offsets()
    if isinstance(offsets, str):
        return offsets
    if question.known.lattice is None:
        return "its offsets do not form a lattice, each point once"
    if stray := question.stray(offsets):
        return stray
    return partial(run, points=question.known.lattice, amount=amount_of_zeros(question.basis, question.known.lattice))


def run(basis: Basis, image: Tensor, points: Lattice, amount: Offset | None) -> Tensor:
    """The layer as one convolution; zeros that the convolution can add itself are left to it."""
    taps = basis.weights.taps()
    if not points.in_order:
        taps = torch.stack([taps[head] for head in points.order])
    kernel = plainly_stored(taps.permute(1, 2, 0).reshape(*taps.shape[1:], *points.kernel_size))
    none = (0,) * len(points.first)
    if amount is None:
        image, amount = cropped(basis, image, points), none
    stride, bias, groups = basis.sites.stride, basis.weights.bias, basis.weights.groups
    image = plainly_stored(image)
    result = torch.convolution(image, kernel, bias, stride, amount, points.dilation, False, none, groups)
    return with_flat_positions(result, basis.operators)


def plainly_stored(tensor: Tensor) -> Tensor:
    """`tensor` with its last axis innermost where the CPU computes in bfloat16.

    With channels innermost oneDNN, as of torch 2.13, reads beyond the image for some strides and dilations, and gives
    noise or crashes.
    """
    if tensor.dtype != torch.bfloat16 or tensor.device.type != "cpu":
        return tensor
    if not torch.compiler.is_compiling() and tensor.stride() == tensor.new_empty(tensor.shape, device="meta").stride():
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def spans_and_starts(basis: Basis, points: Lattice) -> tuple[list[int], list[int]]:
    """For each axis, how far the first tap is from the last, and on which key the first query's first tap stands."""
    spans = [d * (k - 1) for d, k in zip(points.dilation, points.kernel_size, strict=True)]
    return spans, [b + first for b, first in zip(basis.sites.before, points.first, strict=True)]


def amount_of_zeros(basis: Basis, points: Lattice) -> Offset | None:
    """The symmetric amount of zeros with which a convolution pads by itself, or None where the keys are to be built."""
    (spans, starts), padding, sites = spans_and_starts(basis, points), basis.padding, basis.sites
    whole = not any(starts) and all(span == b + a for span, b, a in zip(spans, sites.before, sites.after, strict=True))
    plain = padding.mode == "zeros" and max(padding.spacing) == 1 and min(padding.before) >= 0
    return padding.before if whole and plain and padding.before == padding.after else None


def cropped(basis: Basis, image: Tensor, points: Lattice) -> Tensor:
    """The keys without those that no tap reads at stride 1, before and behind: constant amounts, at every size."""
    keys, (spans, starts), sites = basis.padding.pad(image), spans_and_starts(basis, points), basis.sites
    for axis, (start, span) in enumerate(zip(starts, spans, strict=True)):
        behind = max(sites.before[axis] + sites.after[axis] - start - span, 0)
        if start or behind:
            keys = keys.narrow(2 + axis, start, keys.shape[2 + axis] - start - behind)
    return keys
