"""The way back: the convolution that a hard attention layer is, or the one that a soft layer is nearest to."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import gcd, sqrt
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention, QuadraticEncoding, hard_offsets
from conv2attn.attention.hardness import first_stray
from conv2attn.basis import AttentionGrid, Offset, Padding
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.span.conditions.problem import selected, shifts
from conv2attn.span.sources.arguments import as_sides
from conv2attn.span.sources.layers import check_ours, read_layer
from conv2attn.span.sources.reading import MEMORY_LIMIT
from conv2attn.span.uses.modules import module_of
from conv2attn.theorem import Convolution


@final
@dataclass(frozen=True, eq=False)
class Recovered:
    """A convolution, the `share` of the layer that it explains, and the Frobenius norm of what it leaves.

    For a hard layer it is the layer, at every input size: 1 and 0. For a soft one, with `L_q` the matrix from padded
    keys and input channels to the output channels of query q, `C_q` that of the convolution, and sums over the queries
    whose whole kernel is on the padded grid (biases apart): the taps minimise `residual^2 = sum_q |L_q - C_q|^2`, and
    `share = 1 - residual^2 / sum_q |L_q|^2`.
    """

    module: nn.Module
    share: float
    residual: float


def recover(
    layer: MultiHeadSelfAttention,
    *,
    kernel_size: int | Sequence[int] = 3,
    dilation: int | Sequence[int] = 1,
    grid: Sequence[int] | int | None = None,
) -> Recovered:
    """The convolution that a hard attention layer is, or the one of this kernel that a soft layer is nearest to.

    Heads on one offset add up; offsets of the kernel without a head are zero taps. Heads or kernels that look beyond an
    unpadded grid read its border: replicate padding (E8 of docs/errata.md).

    Args:
        layer: attention by position alone.
        kernel_size, dilation: of the nearest convolution; a hard layer has its own.
        grid: sides of the input on which the nearest is nearest; three dilated kernels a side by default.
    Raises:
        UsageError: it is no such layer (C2A502), its attention depends on the image (C2A505), or no query has the
            kernel on the grid (C2A504).
        UnsupportedError: torch.nn has no layer of this geometry (C2A101).
    """
    check_ours(layer)
    if layer.has_content:
        raise UsageError("C2A505", f"{layer.name}: its attention depends on the image")
    taps = layer.weights.taps().detach()
    offsets = hard_offsets(layer.encoding.operators(), taps.dtype)
    if not isinstance(offsets, str):
        return Recovered(module(layer, offsets, taps, box_of(offsets), hard=True), 1.0, 0.0)
    sizes, steps = as_sides(kernel_size, layer.dimensions), as_sides(dilation, layer.dimensions)
    assert sizes is not None
    assert steps is not None
    if {len(sizes), len(steps)} != {layer.dimensions} or min(sizes + steps) < 1:
        raise UsageError(
            "C2A504", f"kernel_size={kernel_size}, dilation={dilation} are not {layer.dimensions} positive"
        )
    first = tuple(-d * ((k - 1) // 2) for k, d in zip(sizes, steps, strict=True))
    asked = tuple(product(*([f + d * t for t in range(k)] for f, d, k in zip(first, steps, sizes, strict=True))))
    sides = as_sides(grid, layer.dimensions) or tuple(3 * d * k for d, k in zip(steps, sizes, strict=True))
    nearest, whole, left = nearest_taps(layer, taps, asked, sides)
    found = module(layer, asked, nearest, (sizes, steps, first), hard=False)
    return Recovered(found, 1 - left / whole if whole else 1.0, sqrt(left))


def nearest_taps(
    layer: MultiHeadSelfAttention, taps: Tensor, offsets: tuple[Offset, ...], sides: Sequence[int]
) -> tuple[Tensor, float, float]:
    """The taps of the nearest convolution, rounded to the layer's dtype, with the squared norms of what is and is left.

    Shifts do not overlap, so tap t is the mean over these queries of `sum_h A_h(q, q + offset_t) M_h`.

    Raises:
        UsageError: no query has them all on the padded grid (C2A504).
    """
    attention = read_layer(layer.name, layer, tuple(sides), MEMORY_LIMIT)
    targets = shifts(attention.grid, offsets)
    count = int(targets.interior.sum())
    if not count:
        raise UsageError("C2A504", f"{layer.name}: no query of {tuple(sides)} has the whole kernel on the padded grid")
    matrices = taps.double().cpu().numpy()
    met, gram = np.zeros((len(offsets), layer.heads)), np.zeros((layer.heads, layer.heads))
    for _, queries, block in selected(attention, targets.interior):
        met += np.tensordot(targets.block(queries, block.shape[2]), block, ((1, 2), (1, 2)))
        gram += np.tensordot(block, block, ((1, 2), (1, 2)))
    best = np.tensordot(met / count, matrices, 1)
    kept = torch.from_numpy(best).to(taps)
    whole = float((gram * np.tensordot(matrices, matrices, ((1, 2), (1, 2)))).sum())
    rounding = float(((kept.double().cpu().numpy() - best) ** 2).sum())
    return kept, whole, max(0.0, whole - count * float((best**2).sum())) + count * rounding


def box_of(offsets: tuple[Offset, ...]) -> tuple[Offset, Offset, Offset]:
    """Kernel size, dilation and first offset of the smallest kernel whose taps include these offsets."""
    kernel, dilation, first = [], [], []
    for along in zip(*offsets, strict=True):
        low, step = min(along), gcd(*(x - min(along) for x in along))
        dilation.append(step or 1)
        kernel.append((max(along) - low) // (step or 1) + 1)
        first.append(low)
    return tuple(kernel), tuple(dilation), tuple(first)


def module(
    layer: MultiHeadSelfAttention,
    offsets: tuple[Offset, ...],
    taps: Tensor,
    box: tuple[Offset, Offset, Offset],
    hard: bool,
) -> nn.Module:
    """The module with these taps, on the sites and the padding of the layer; `box` as of `box_of`."""
    kernel, steps, first = box
    weight = taps.new_zeros((layer.d_out, layer.d_in // layer.groups, *kernel))
    seen: set[Offset] = set()
    for offset, tap in zip(offsets, taps, strict=True):
        place: Any = (Ellipsis, *((o - f) // d for o, f, d in zip(offset, first, steps, strict=True)))
        weight[place] = weight[place] + tap if offset in seen else tap
        seen.add(offset)
    padding = padding_of(layer, offsets, kernel, steps, first, hard)
    free = zip(kernel, steps, padding.before, padding.after, strict=True)
    dilation = tuple(d if k > 1 else max(1, a - b + 1) for k, d, b, a in free)
    try:
        return module_of(Convolution(weight, layer.bias, layer.sites.stride, dilation, padding, layer.groups))
    except UnsupportedError as refusal:
        raise UnsupportedError(refusal.code, f"{layer.name}: {refusal.found}") from refusal


def padding_of(
    layer: MultiHeadSelfAttention,
    offsets: tuple[Offset, ...],
    kernel: Offset,
    dilation: Offset,
    first: Offset,
    hard: bool,
) -> Padding:
    """The padding that puts the first window of the kernel on the first site of the layer, and the last on the last.

    Raises:
        UnsupportedError: heads that read the border of padding once more (C2A101).
    """
    padding, sites = layer.padding, layer.sites
    before = tuple(p - s - f for p, s, f in zip(padding.before, sites.before, first, strict=True))
    last = [f + d * (k - 1) for f, d, k in zip(first, dilation, kernel, strict=True)]
    after = tuple(p - s + x for p, s, x in zip(padding.after, sites.after, last, strict=True))
    moved = replace(padding, before=before, after=after)
    once = tuple(max(1, b + a + 1) for b, a in zip(sites.before, sites.after, strict=True))
    if first_stray(AttentionGrid(once, sites), offsets) is None:
        return moved
    bordered = padding.is_identity or padding.mode == "replicate"
    if hard and not (bordered and isinstance(layer.encoding, QuadraticEncoding)):
        where = "grid, where the enumerated encoding finds other pixels"
        where = where if bordered else f"{padding.mode} padding and read its border again"
        raise UnsupportedError("C2A101", f"{layer.name} is no torch.nn convolution: its heads look beyond the {where}")
    return replace(moved, mode="replicate") if bordered else moved
