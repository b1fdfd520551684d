"""Builds the torch.nn module of a `Convolution`: the inverse of `theorem.read_convolution`."""

from collections.abc import Sequence
from dataclasses import replace
from math import gcd
from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.errors import UnsupportedError
from conv2attn.layers.attention.hardness import within_margins
from conv2attn.layers.framework import to_torch
from conv2attn.layers.theorem.convolution import Convolution, resolve_padding
from conv2attn.theory.basis import MODES, Basis, Combination, Offset, Padding, Shift, Weights, basis_of, turned

CONVOLUTION_LAYERS: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED_LAYERS: dict[int, Any] = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


@to_torch.register
def _(basis: Basis) -> nn.Module:
    """Shifts become a convolution; mixtures of shifts a depthwise convolution followed by a pointwise one (Eq. 9)."""
    operators, weights = basis.operators, basis.weights
    if isinstance(operators, Shift):
        return module_of(zero_padded(operators.offsets, basis))
    if not (isinstance(operators, Combination) and isinstance(operators.family, Shift) and weights.groups == 1):
        raise UnsupportedError(
            "C2A110",
            f"no layer of torch.nn has the operators of a {type(operators).__name__}",
            "Keep it as a BasisConvolution or as attention.",
        )
    axes = len(basis.padding.before)
    # Each mixture of shifts is one kernel, and each input channel is convolved with all of them.
    kernels = operators.coefficients.mT.repeat(1, weights.d_in)[:, :, None]
    depthwise = Basis(operators.family, Weights(None, kernels, None, weights.d_in), basis.padding, basis.sites)
    matrix = weights.taps().permute(1, 2, 0).flatten(1)
    pointwise = Weights(None, matrix[None], weights.bias)
    return nn.Sequential(to_torch(depthwise), to_torch(basis_of(Shift(((0,) * axes,)), pointwise, axes)))


def zero_padded(offsets: tuple[Offset, ...], basis: Basis) -> Convolution:
    """`convolution_of`, if shifts read zeros beyond the padded grid.

    Raises:
        UnsupportedError: shifts reach beyond a padding that is not zeros (C2A101).
    """
    padding = replace(basis.padding, mode="zeros") if basis.padding.is_identity else basis.padding
    if padding.mode != "zeros" and not within_margins(basis.sites, offsets):
        raise UnsupportedError(
            "C2A101",
            f"shifts that reach beyond {padding.mode} padding are not a torch.nn convolution",
            "Keep it as attention, or as a Basis.",
        )
    return convolution_of(offsets, replace(basis, padding=padding))


def convolution_of(offsets: Sequence[Offset], basis: Basis) -> Convolution:
    """The convolution whose taps are the channel matrices of `basis` at these offsets; equal offsets add up.

    Its padding aligns the first window of the kernel with the first site, and the last with the last.
    """
    kernel, steps, first = box_of(offsets)
    taps, padding, sites = basis.weights.taps().detach(), basis.padding, basis.sites
    weight = taps.new_zeros((*taps.shape[1:], *kernel))
    placed: set[Offset] = set()
    for offset, tap in zip(offsets, taps, strict=True):
        place: Any = (Ellipsis, *((o - f) // d for o, f, d in zip(offset, first, steps, strict=True)))
        weight[place] = weight[place] + tap if offset in placed else tap
        placed.add(offset)
    before = tuple(p - s - f for p, s, f in zip(padding.before, sites.before, first, strict=True))
    last = [f + d * (k - 1) for f, d, k in zip(first, steps, kernel, strict=True)]
    after = tuple(p - s + x for p, s, x in zip(padding.after, sites.after, last, strict=True))
    free = zip(kernel, steps, before, after, strict=True)
    dilation = tuple(d if k > 1 else max(1, a - b + 1) for k, d, b, a in free)
    new_padding = replace(padding, before=before, after=after)
    return Convolution(weight, basis.weights.bias, sites.stride, dilation, new_padding, basis.weights.groups)


def box_of(offsets: Sequence[Offset]) -> tuple[Offset, Offset, Offset]:
    """Kernel size, dilation and first offset of the smallest kernel whose taps include these offsets."""
    kernel, dilation, first = [], [], []
    for along in zip(*offsets, strict=True):
        low, step = min(along), gcd(*(x - min(along) for x in along))
        dilation.append(step or 1)
        kernel.append((max(along) - low) // (step or 1) + 1)
        first.append(low)
    return tuple(kernel), tuple(dilation), tuple(first)


def module_of(convolution: Convolution) -> nn.Module:
    """The module of a convolution: nn.Conv1d/2d/3d or nn.ConvTranspose1d/2d/3d.

    Padding that no convolution layer supports, uneven or negative, becomes a separate layer before it; an uneven end of
    a transposed convolution is cropped by a layer after it.

    Raises:
        UnsupportedError: a padding mode that torch lacks, or a zero-stuffed grid that is strided too, or padded further
            than its taps reach (C2A101).
    """
    if max(convolution.padding.spacing) > 1:
        return transposed_layer(convolution)
    before, after, mode = convolution.padding.before, convolution.padding.after, convolution.padding.mode
    if not MODES[mode].padder:
        raise UnsupportedError("C2A101", f"torch.nn has no {mode} padding", "Keep it as attention, or as a Basis.")
    numbers = (convolution.kernel_size, convolution.dilation, convolution.stride)
    # torch's layers pad both ends alike, or by "same"; other amounts need a layer of their own.
    if before == after and min(before) >= 0:
        return plain_layer(convolution, before, mode)
    if max(convolution.stride) == 1 and (before, after) == resolve_padding("same", *numbers):
        return plain_layer(convolution, "same", mode)
    return nn.Sequential(*padding_layers(convolution.padding), plain_layer(convolution, (0,) * len(before), "zeros"))


def plain_layer(convolution: Convolution, padding: Offset | str, mode: str) -> nn.Module:
    """A convolution layer with these taps."""
    module = CONVOLUTION_LAYERS[len(convolution.kernel_size)](
        convolution.d_in,
        convolution.d_out,
        convolution.kernel_size,
        stride=convolution.stride,
        padding=padding,
        dilation=convolution.dilation,
        groups=convolution.groups,
        bias=convolution.bias is not None,
        padding_mode=mode,
        device="meta",
    )
    return with_parameters(module, convolution.weight, convolution.bias)


def transposed_layer(convolution: Convolution) -> nn.Module:
    """A transposed convolution layer, with its output cropped if its two ends differ by more than the layer supports.

    Raises:
        UnsupportedError: as `module_of`.
    """
    padding, dilation = convolution.padding, convolution.dilation
    reach = [d * (k - 1) for d, k in zip(dilation, convolution.kernel_size, strict=True)]
    front, behind = ([r - p for r, p in zip(reach, at, strict=True)] for at in (padding.before, padding.after))
    if max(convolution.stride) > 1:
        raise UnsupportedError(
            "C2A101",
            "it reads a zero-stuffed grid at strided sites, as no torch.nn layer does",
            "Keep it as attention, or as a Basis.",
        )
    extra, cut, crop = [], [], []
    for f, b, stride, step in zip(front, behind, padding.spacing, dilation, strict=True):
        # torch's `output_padding` makes only the far end longer, by less than a stride or a dilation.
        fits = 0 <= f - b < max(stride, step)
        # torch crops both ends by one amount: the smaller one, and a layer after it crops the rest.
        cut.append(f if fits else min(f, b))
        extra.append(f - b if fits else 0)
        crop.append((0, 0) if fits else (f - min(f, b), b - min(f, b)))
    if min(cut) < 0:
        raise UnsupportedError(
            "C2A101",
            f"it pads a zero-stuffed grid further than its taps reach, by {-min(cut)}",
            "Keep it as attention, or as a Basis.",
        )
    module = TRANSPOSED_LAYERS[len(cut)](
        convolution.d_in,
        convolution.d_out,
        convolution.kernel_size,
        stride=padding.spacing,
        padding=tuple(cut),
        output_padding=tuple(extra),
        dilation=dilation,
        groups=convolution.groups,
        bias=convolution.bias is not None,
        device="meta",
    )
    layer = with_parameters(module, turned(convolution.weight, convolution.groups), convolution.bias)
    cropped = Padding(tuple(-at for at, _ in crop), tuple(-at for _, at in crop))
    return layer if cropped.is_identity else nn.Sequential(layer, *padding_layers(cropped))


def padding_layers(padding: Padding) -> list[nn.Module]:
    """The padding as layers: first the added pixels, then the cropped ones."""
    added = [max(x, 0) for x in torch_amounts(padding)]
    cropped = [min(x, 0) for x in torch_amounts(padding)]
    axes = len(padding.before)
    kinds = [(padding.mode, added), ("zeros", cropped)]
    return [MODES[mode].layer(axes)(tuple(x), *([0.0] if mode == "zeros" else [])) for mode, x in kinds if any(x)]


def torch_amounts(padding: Padding) -> list[int]:
    """The amounts in torch's order: last axis first, before and after."""
    return [x for pair in zip(reversed(padding.before), reversed(padding.after), strict=True) for x in pair]


def with_parameters(module: nn.Module, weight: Tensor, bias: Tensor | None) -> nn.Module:
    """`module`, made on the meta device, with these parameters."""
    module.weight = nn.Parameter(weight.detach().clone(memory_format=torch.contiguous_format))
    if bias is not None:
        module.bias = nn.Parameter(bias.detach().clone())
    return module
