"""From what a convolution is to the torch.nn module that computes it: the inverse of `theorem.read`."""

from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.basis import Offset, Padding
from conv2attn.errors import UnsupportedError
from conv2attn.theorem import Convolution
from conv2attn.theorem.convolution import resolve_padding

PLAIN: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED: dict[int, Any] = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
PADS: dict[str, dict[int, Any]] = {
    "zeros": {1: nn.ConstantPad1d, 2: nn.ConstantPad2d, 3: nn.ConstantPad3d},
    "reflect": {1: nn.ReflectionPad1d, 2: nn.ReflectionPad2d, 3: nn.ReflectionPad3d},
    "replicate": {1: nn.ReplicationPad1d, 2: nn.ReplicationPad2d, 3: nn.ReplicationPad3d},
    "circular": {1: nn.CircularPad1d, 2: nn.CircularPad2d, 3: nn.CircularPad3d},
}


def module_of(convolution: Convolution) -> nn.Module:
    """The module that computes it: nn.Conv1d/2d/3d or nn.ConvTranspose1d/2d/3d.

    Padding that no convolution layer has, uneven or negative, is a layer of its own in front; an uneven end of a
    transposed convolution is cropped by one behind.

    Raises:
        UnsupportedError: a zero-stuffed grid that is strided too, or padded further than its taps reach (C2A101).
    """
    if max(convolution.padding.spacing) > 1:
        return transposed_of(convolution)
    before, after, mode = convolution.padding.before, convolution.padding.after, convolution.padding.mode
    numbers = (convolution.kernel_size, convolution.dilation, convolution.stride)
    if before == after and min(before) >= 0:
        return plain(convolution, before, mode)
    if max(convolution.stride) == 1 and (before, after) == resolve_padding("same", *numbers):
        return plain(convolution, "same", mode)
    return nn.Sequential(*pads(convolution.padding), plain(convolution, (0,) * len(before), "zeros"))


def plain(convolution: Convolution, padding: Offset | str, mode: str) -> nn.Module:
    """A convolution layer with these taps."""
    made = PLAIN[len(convolution.kernel_size)](
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
    return filled(made, convolution.weight, convolution.bias)


def transposed_of(convolution: Convolution) -> nn.Module:
    """A transposed convolution layer, whose output is cropped where its two ends differ by more than it can.

    Raises:
        UnsupportedError: as `module_of`.
    """
    padding, dilation = convolution.padding, convolution.dilation
    reach = [d * (k - 1) for d, k in zip(dilation, convolution.kernel_size, strict=True)]
    front, behind = ([r - p for r, p in zip(reach, at, strict=True)] for at in (padding.before, padding.after))
    if max(convolution.stride) > 1:
        raise UnsupportedError("C2A101", "it reads a zero-stuffed grid at strided sites, as no torch.nn layer does")
    extra, cut, crop = [], [], []
    for f, b, stride, step in zip(front, behind, padding.spacing, dilation, strict=True):
        within = 0 <= f - b < max(stride, step)
        cut.append(f if within else min(f, b))
        extra.append(f - b if within else 0)
        crop.append((0, 0) if within else (f - min(f, b), b - min(f, b)))
    if min(cut) < 0:
        raise UnsupportedError("C2A101", f"it pads a zero-stuffed grid further than its taps reach, by {-min(cut)}")
    weight = convolution.weight.unflatten(0, (convolution.groups, -1)).transpose(1, 2).flatten(0, 1)
    made = TRANSPOSED[len(cut)](
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
    found = filled(made, weight.flip(list(range(2, weight.ndim))), convolution.bias)
    cropped = Padding(tuple(-at for at, _ in crop), tuple(-at for _, at in crop))
    return found if cropped.is_identity else nn.Sequential(found, *pads(cropped))


def pads(padding: Padding) -> list[nn.Module]:
    """The padding as layers: what the mode adds, then what is cropped."""
    added = [max(x, 0) for x in flat(padding)]
    cropped = [min(x, 0) for x in flat(padding)]
    axes = len(padding.before)
    kinds = [(padding.mode, added), ("zeros", cropped)]
    return [PADS[mode][axes](tuple(x), *([0.0] if mode == "zeros" else [])) for mode, x in kinds if any(x)]


def flat(padding: Padding) -> list[int]:
    """The amounts as torch takes them: last axis first, before and after."""
    return [x for pair in zip(reversed(padding.before), reversed(padding.after), strict=True) for x in pair]


def filled(made: nn.Module, weight: Tensor, bias: Tensor | None) -> nn.Module:
    """A module of no memory with these parameters."""
    made.weight = nn.Parameter(weight.detach().clone(memory_format=torch.contiguous_format))
    if bias is not None:
        made.bias = nn.Parameter(bias.detach().clone())
    return made
