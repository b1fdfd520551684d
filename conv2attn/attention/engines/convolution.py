"""Hard heads whose offsets form a lattice, compiled back to the convolution of torch."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import torch
from torch import Tensor

from conv2attn.attention.call import Call
from conv2attn.attention.hardness import first_stray, hard_offsets, with_flat_positions
from conv2attn.attention.probes import indirect_convolution
from conv2attn.basis import Offset


@final
@dataclass(frozen=True)
class Lattice:
    """Offsets that are `first + dilation * t` for all taps t of a kernel; `order` lists the heads row-major."""

    first: Offset
    dilation: Offset
    kernel_size: Offset
    order: tuple[int, ...]


@lru_cache(maxsize=1024)
def lattice(offsets: tuple[Offset, ...]) -> Lattice | None:
    """The lattice that the offsets fill, each point once and in any order, or None."""
    axes = [sorted(set(axis)) for axis in zip(*offsets, strict=True)]
    dilation = tuple(axis[1] - axis[0] if len(axis) > 1 else 1 for axis in axes)
    even = all(axis == list(range(axis[0], axis[-1] + 1, d)) for axis, d in zip(axes, dilation, strict=True))
    if not even or len(set(offsets)) != len(offsets) or math.prod(map(len, axes)) != len(offsets):
        return None
    order = tuple(sorted(range(len(offsets)), key=offsets.__getitem__))
    return Lattice(tuple(axis[0] for axis in axes), dilation, tuple(map(len, axes)), order)


def prepare(call: Call) -> Callable[[], Tensor] | str:
    """Ready to run if the layer is a convolution on its padded grid, computed directly by this device; else why not."""
    if call.layer.has_content:
        return "its attention depends on the content"
    offsets = hard_offsets(call.layer.encoding, call.image.dtype)
    if isinstance(offsets, str):
        return offsets
    points = lattice(offsets)
    if points is None:
        return "its offsets do not form a lattice, each point once"
    stray = first_stray(call.grid, offsets)
    if stray is not None:
        return f"head {stray} leaves the grid at offset {offsets[stray]}"
    indirect = indirect_convolution(call.image)
    if indirect and call.layer.engine == "auto":
        return indirect
    return lambda: with_flat_positions(run(call, points), call.layer.encoding)


def run(call: Call, points: Lattice) -> Tensor:
    """The layer as one convolution; zeros that the convolution can add itself are left to it."""
    taps = call.weights.taps()
    if points.order != tuple(range(len(points.order))):
        taps = taps[list(points.order)]
    kernel = taps.permute(1, 2, 0).unflatten(2, points.kernel_size)
    image, amount = keys_and_padding(call, points)
    stride, bias, none = call.sites.stride, call.weights.bias, (0,) * len(amount)
    image, kernel = plainly_stored(image), plainly_stored(kernel)
    return torch.convolution(image, kernel, bias, stride, amount, points.dilation, False, none, call.weights.groups)


def plainly_stored(tensor: Tensor) -> Tensor:
    """`tensor` with its last axis innermost where the CPU computes in bfloat16.

    With channels innermost oneDNN, as of torch 2.13, reads beyond the image for some strides and dilations, and gives
    noise or crashes.
    """
    if tensor.dtype != torch.bfloat16 or tensor.device.type != "cpu":
        return tensor
    plain = tensor.stride() == tensor.new_empty(tensor.shape, device="meta").stride()
    return tensor if plain else tensor.clone(memory_format=torch.contiguous_format)


def keys_and_padding(call: Call, points: Lattice) -> tuple[Tensor, Offset]:
    """What the convolution reads: the image and a symmetric amount of zeros, or the keys cropped to those it reads."""
    padding, sites = call.padding, call.sites
    spans = [d * (k - 1) for d, k in zip(points.dilation, points.kernel_size, strict=True)]
    starts = [b + first for b, first in zip(sites.before, points.first, strict=True)]
    whole = not any(starts) and all(span == b + a for span, b, a in zip(spans, sites.before, sites.after, strict=True))
    plain = padding.mode == "zeros" and max(padding.spacing) == 1 and min(padding.before) >= 0
    if whole and plain and padding.before == padding.after:
        return call.image, padding.before
    keys = call.padded
    for axis, (start, span, n, s) in enumerate(zip(starts, spans, call.grid.queries, sites.stride, strict=True)):
        keys = keys.narrow(2 + axis, start, (n - 1) * s + span + 1)
    return keys, (0,) * len(starts)
