"""The bounds in a stored certificate beside the ones that the program of claim ROW proves for the two layers.

The layers are read here by code of its own, from their attributes.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.layers.attention.measured_arithmetic import arithmetics
from conv2attn.theory.basis import isotropic
from conv2attn.theory.bounds import Arithmetic, Head, target_rounds_to_one_threshold, worst
from conv2attn.theory.bounds.by_key import heads_of_row
from conv2attn.theory.bounds.row import OutputChannel, Setting, SoftHeads

CONVOLUTION_MODULES = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)

Pixel = tuple[int, ...]


@final
@dataclass(frozen=True)
class Objection:
    """One sentence against a certificate; unless `sure`, it only leaves the certificate undecided."""

    sentence: str
    sure: bool = True


@final
@dataclass(frozen=True, eq=False)
class LayerNumbers:
    """A layer as numbers: output o of head or tap t copies pixel `starts[t] + o * stride` of pixels `spacing` apart.

    `factors` are the matrices by which a pixel is multiplied, (terms, rows, columns of a group); a tap has one.
    `padding` is (before, after, mode). A head has an `alpha`, and is `apart` if its target can be no pixel.
    """

    groups: int
    spacing: Pixel
    stride: Pixel
    room: Pixel
    padding: tuple[Pixel, Pixel, str]
    starts: tuple[Pixel, ...]
    factors: tuple[Tensor, ...]
    bias: Tensor | None
    alpha: tuple[float, ...] = ()
    apart: tuple[bool, ...] = ()

    @staticmethod
    def of(module: Any) -> "LayerNumbers | None":
        """A convolution or an attention with quadratic heads, as its attributes say; None for anything else."""
        if isinstance(module, MultiHeadSelfAttention):
            return LayerNumbers.of_attention(module)
        return LayerNumbers.of_convolution(module) if isinstance(module, CONVOLUTION_MODULES) else None

    @staticmethod
    def of_convolution(conv: Any) -> "LayerNumbers":
        """A convolution: output o reads pixel `o * stride + t * dilation` of the padded, or zero-stuffed, image."""
        reach = [d * (k - 1) for d, k in zip(conv.dilation, conv.kernel_size, strict=True)]
        room: Any = [(p, p) for p in conv.padding] if isinstance(conv.padding, tuple) else None
        if conv.padding == "same":
            room = [(r // 2, r - r // 2) for r in reach]
        if conv.padding == "valid":
            room = [(0, 0) for _ in reach]
        if conv.transposed:
            each = zip(reach, conv.padding, conv.output_padding, strict=True)
            room = [(r - p, r - p + more) for r, p, more in each]
        before, after = (tuple(pair[side] for pair in room) for side in (0, 1))
        taps = product(*([d * t for t in range(k)] for d, k in zip(conv.dilation, conv.kernel_size, strict=True)))
        starts = tuple(tuple(x - b for x, b in zip(tap, before, strict=True)) for tap in taps)
        over = tuple(b + a - r for b, a, r in zip(before, after, reach, strict=True))
        ones = (1,) * len(reach)
        spacing, stride = (conv.stride, ones) if conv.transposed else (ones, conv.stride)
        matrices = taps_in(conv.weight.detach(), conv.groups, conv.transposed)
        padding = before, after, conv.padding_mode
        return LayerNumbers(conv.groups, spacing, stride, over, padding, starts, (matrices,), conv.bias)

    @staticmethod
    def of_attention(layer: Any) -> "LayerNumbers | None":
        """An attention whose heads are quadratic and read positions alone; None for another."""
        heads = isotropic(layer.operators())
        if heads is None:
            return None
        factors = [each.detach().permute(2, 0, 1) for each in (layer.value, layer.output) if each is not None]
        if layer.weight is not None:
            factors = [taps_in(layer.weight.detach(), layer.groups, layer.transposed)]
        grid, (first, last, stride) = layer.image_padding, (layer.sites.before, layer.sites.after, layer.sites.stride)
        edges = zip(grid.before, grid.after, first, last, strict=True)
        room = tuple(b + a - f - e for b, a, f, e in edges)
        starts, apart = list[Pixel](), list[bool]()
        for center in heads.center.double().tolist():
            pixel = tuple(map(round, center)) if all(map(math.isfinite, center)) else (0,) * len(center)
            starts.append(tuple(f + x - b for f, x, b in zip(first, pixel, grid.before, strict=True)))
            inside = all(-f <= x <= e for f, x, e in zip(first, pixel, last, strict=True))
            apart.append(not inside or pixel != tuple(center))
        padding, alpha = (grid.before, grid.after, grid.mode), tuple(heads.alpha.tolist())
        numbers = tuple(starts), tuple(factors), layer.bias, alpha, tuple(apart)
        return LayerNumbers(layer.groups, grid.spacing, stride, room, padding, *numbers)

    @property
    def d_in(self) -> int:
        """Number of input channels."""
        return self.factors[0].shape[2] * self.groups

    @property
    def d_out(self) -> int:
        """Number of output channels."""
        return self.factors[-1].shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the factors."""
        return self.factors[-1].dtype

    @property
    def terms(self) -> int:
        """Products that are summed up for one output."""
        return max(1, len(self.starts) * self.factors[0].shape[2])

    @property
    def ratios(self) -> list[Fraction]:
        """By how many outputs a pixel is apart from the next along each axis."""
        return [Fraction(p, s) for p, s in zip(self.spacing, self.stride, strict=True)]

    @property
    def biases(self) -> Tensor:
        """The bias, zeros where there is none."""
        return torch.zeros(self.d_out, dtype=self.dtype) if self.bias is None else self.bias

    def working(self) -> list[int]:
        """The heads or taps that are not zero."""
        return [t for t in range(len(self.starts)) if all(factor[t].any() for factor in self.factors)]


def taps_in(weight: Tensor, groups: int, transposed: bool) -> Tensor:
    """The matrices of the taps in a convolution's weight, (taps, rows, columns of a group)."""
    if transposed:
        weight = weight.flip(list(range(2, weight.ndim))).unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
    return weight.flatten(2).permute(2, 0, 1)


def too_small(row: Mapping[str, Any], first: nn.Module, second: nn.Module, *, sure: bool) -> Iterator[Objection]:
    """The objection to a stored row whose bound is below `proved_bound`."""
    bound, within = (row.get(field) for field in ("bound", "input_range"))
    ours, theirs = (LayerNumbers.of(each) for each in (first, second))
    if not isinstance(bound, float) or not isinstance(within, float) or not math.isfinite(bound + within):
        return
    if ours is None or theirs is None:
        return
    least = proved_bound(ours, theirs, Fraction(within))
    if least is not None and Fraction(bound) < least:
        yield Objection(f"the bound {bound:g} is below {float(least):g}, which is proved", sure)


def proved_bound(convolution: LayerNumbers, converted: LayerNumbers, input_range: Fraction) -> Fraction | None:
    """The bound on two layers as computed by direct sums, by claim ROW of proofs/: products of factors left out.

    None where the first is no convolution, or nothing is known.
    """
    weights, biases = convolution.factors[0].double().abs().sum((0, 2)), convolution.biases.double().abs()
    if convolution.alpha or not (weights.isfinite().all() and biases.isfinite().all()):
        return None
    own = worst(arithmetics("dense", convolution.dtype, convolution.biases.device.type))
    first, second = (
        Setting.of(layer.terms, own.format, casts=2, truncating=own.truncates, flush_to_zero=own.flushes)
        for layer in (convolution, converted)
    )
    channel = int((weights * float(input_range) + biases).argmax())
    sums = Fraction(weights[channel].item()) * (1 - Fraction(1, 2**30))  # as it may be rounded
    return OutputChannel.of(sums, biases[channel].item(), input_range, first, second, row_heads(converted, own)).proved


def row_heads(layer: LayerNumbers, arithmetic: Arithmetic) -> SoftHeads | None:
    """The heads of a layer as claim ROW takes them, on no more keys than one; None where all may be one-hot."""
    working, axes = layer.working() if layer.alpha else [], len(layer.stride)
    alpha = min((layer.alpha[head] for head in working), default=math.inf)
    hard = target_rounds_to_one_threshold(arithmetic.format, axes, arithmetic.exp_ulps)
    if not alpha < hard or any(layer.apart[head] for head in working):
        return None
    return heads_of_row(Head(alpha, (0.0,) * axes), (1,) * axes, arithmetic, 0.0)
