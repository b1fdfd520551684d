"""The way back: the convolution that a hard attention layer is, or the one that a soft layer is nearest to."""

from dataclasses import dataclass
from math import gcd
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention, QuadraticEncoding, Weights, hard_offsets
from conv2attn.attention.hardness import first_stray
from conv2attn.basis import AttentionGrid, Offset, Sides
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.span.layers import read_layer
from conv2attn.span.problem import shifts
from conv2attn.span.reading import MEMORY_LIMIT

KINDS: dict[int, type[nn.Conv1d] | type[nn.Conv2d] | type[nn.Conv3d]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


@final
@dataclass(frozen=True, eq=False)
class Nearest:
    """The convolution nearest to a layer in the Frobenius norm of their maps, on one grid; and its `share`.

    `share` is 1 - |layer - convolution|^2 / |layer|^2, biases apart: 1 if the layer is that convolution on this grid.
    `taps` are (offsets, d_out, d_in / groups).
    """

    offsets: tuple[Offset, ...]
    taps: Tensor
    share: float


def recover(layer: MultiHeadSelfAttention) -> nn.Module:
    """The nn.Conv1d, nn.Conv2d or nn.Conv3d that a hard attention layer is, for every input size.

    Heads on one offset add up; offsets of the kernel without a head are zero taps. Heads that look beyond an unpadded
    grid read its border: replicate padding (E8 of docs/errata.md).

    Raises:
        UsageError: it is not hard (C2A505): see `nearest_convolution`.
        UnsupportedError: torch.nn has no layer of this geometry (C2A101).
    """
    weights = Weights(layer.value, layer.output, layer.bias, layer.groups)
    taps = weights.taps().detach()
    offsets = "its attention depends on the image" if layer.has_content else hard_offsets(layer.encoding, taps.dtype)
    if isinstance(offsets, str):
        raise UsageError("C2A505", f"{layer.name}: {offsets}")
    kernel, dilation, first = box_of(offsets)
    mode, before = padding_of(layer, offsets, first, kernel, dilation)
    made = KINDS[layer.dimensions](
        layer.d_in,
        layer.d_out,
        kernel,  # type: ignore[arg-type]
        stride=layer.sites.stride,  # type: ignore[arg-type]
        padding=before,  # type: ignore[arg-type]
        dilation=dilation,  # type: ignore[arg-type]
        groups=layer.groups,
        bias=layer.bias is not None,
        padding_mode=mode,  # type: ignore[arg-type]
        dtype=taps.dtype,
        device=taps.device,
    )
    with torch.no_grad():
        made.weight.zero_()
        for offset, tap in zip(offsets, taps, strict=True):
            place: list[Any] = [(o - f) // d for o, f, d in zip(offset, first, dilation, strict=True)]
            made.weight[(Ellipsis, *place)] += tap
        if made.bias is not None and layer.bias is not None:
            made.bias.copy_(layer.bias)
    return made


def box_of(offsets: tuple[Offset, ...]) -> tuple[Offset, Offset, Offset]:
    """Kernel size, dilation and first offset of the smallest kernel whose taps include these offsets."""
    kernel, dilation, first = [], [], []
    for along in zip(*offsets, strict=True):
        low, step = min(along), gcd(*(x - min(along) for x in along))
        dilation.append(step or 1)
        kernel.append((max(along) - low) // (step or 1) + 1)
        first.append(low)
    return tuple(kernel), tuple(dilation), tuple(first)


def padding_of(
    layer: MultiHeadSelfAttention, offsets: tuple[Offset, ...], first: Offset, kernel: Offset, dilation: Offset
) -> tuple[str, Offset]:
    """Mode and amount of the padding that puts the first window of the kernel on its first site.

    Raises:
        UnsupportedError: zero-stuffed, uneven or negative padding (C2A101).
    """
    padding, sites = layer.padding, layer.sites
    before = tuple(p - s - f for p, s, f in zip(padding.before, sites.before, first, strict=True))
    last = [f + d * (k - 1) for f, d, k in zip(first, dilation, kernel, strict=True)]
    after = tuple(p - s + x for p, s, x in zip(padding.after, sites.after, last, strict=True))
    once = tuple(max(1, b + a + 1) for b, a in zip(sites.before, sites.after, strict=True))
    strays = first_stray(AttentionGrid(once, sites), offsets) is not None
    trouble = None
    if max(padding.spacing) > 1:
        trouble = "it reads a zero-stuffed grid, as a transposed convolution"
    elif before != after or min(before) < 0:
        trouble = f"its padding is {before} before and {after} after"
    elif strays and not padding.is_identity and padding.mode != "replicate":
        trouble = f"its heads look beyond the {padding.mode} padding and read its border again"
    elif strays and not isinstance(layer.encoding, QuadraticEncoding):
        trouble = "its heads look beyond the grid, where the enumerated encoding finds other pixels"
    if trouble:
        raise UnsupportedError("C2A101", f"{layer.name}: no torch.nn convolution is this layer: {trouble}")
    return "replicate" if strays else padding.mode, before


def nearest_convolution(layer: MultiHeadSelfAttention, offsets: tuple[Offset, ...], grid: Sides) -> Nearest:
    """The taps at `offsets` whose map is nearest to the layer's on inputs with these sides, and what they explain.

    Shifts do not overlap, so tap t is `sum_h <S_t, A_h> M_h / <S_t, S_t>`.
    """
    attention = read_layer(layer.name, layer, grid, MEMORY_LIMIT)
    targets = shifts(attention.grid, offsets)
    matrices = Weights(layer.value, layer.output, None, layer.groups).taps().detach().double().cpu().numpy()
    met, gram = np.zeros((len(offsets), layer.heads)), np.zeros((layer.heads, layer.heads))
    for _, rows, block in attention.pieces():
        asked = targets.block(np.arange(rows.start, rows.stop), block.shape[2])
        met += np.tensordot(asked, block, ((1, 2), (1, 2)))
        gram += np.tensordot(block, block, ((1, 2), (1, 2)))
    lengths = (targets.places >= 0).sum(1)
    taps = np.tensordot(met / np.maximum(lengths, 1)[:, None], matrices, 1)
    whole = float((gram * np.tensordot(matrices, matrices, ((1, 2), (1, 2)))).sum())
    explained = float((lengths * (taps**2).sum((1, 2))).sum())
    return Nearest(tuple(offsets), torch.from_numpy(taps), explained / whole if whole else 1.0)
