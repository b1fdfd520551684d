"""Values and outputs that begin as the taps of a convolution.

A 3x3 convolution has nine taps, one matrix per offset. The heads at an offset compute its tap between their values and
outputs: the factors of Lemma 1, where they are wide enough.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.networks.starts.shifts import Offset, Shifts


def check_convolution(convolution: nn.Module, content: int, axes: int) -> Sequence[int]:
    """The kernel size of a convolution between the channels of content.

    Raises:
        UsageError: it is no such convolution (C2A007).
    """
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    if not isinstance(convolution, kinds) or convolution.weight.is_meta or len(convolution.kernel_size) != axes:
        reason = f"values={convolution} is no convolution of {axes} axes with weights"
        raise UsageError("C2A007", reason, "Pass a convolution of as many axes as the grid, with weights.")
    if convolution.groups != 1 or {*convolution.stride, *convolution.dilation} != {1}:
        reason = f"values={convolution} has groups, or a stride or dilation above 1"
        raise UsageError("C2A007", reason, "Pass a plain convolution.")
    if not convolution.in_channels == convolution.out_channels == content:
        reason = f"values: {convolution.in_channels} to {convolution.out_channels} channels, and {content} hold content"
        raise UsageError("C2A007", reason, f"Pass a convolution from {content} to {content} channels.")
    return convolution.kernel_size


def take_values(shifts: Shifts, offsets: Sequence[Offset], convolution: Any) -> None:
    """Sets values and outputs so that the heads at an offset have its tap between them, on the last channels.

    Each tap is `U S V^T`; a head takes as many singular values as it is wide. The position channels are neither read
    nor written.

    Raises:
        UnsupportedError: a tap has a rank above the width of its heads, or no head (C2A604), or the values of a layer
            are not known.
    """
    taps = convolution.weight.detach()
    weight, rounding = taps.double().flatten(2), len(taps) * torch.finfo(taps.dtype).eps
    for name, layer in shifts.trial.layers.items():
        value, output = layer.value_and_output()
        start, width = output.weight.shape[0] - weight.shape[0], layer.width
        for tap, offset in enumerate(offsets):
            heads = [head for head, each in enumerate(shifts.offsets[name]) if each == offset]
            left, sizes, right = torch.linalg.svd(weight[..., tap])
            rank = int((sizes > sizes[0] * rounding).sum())
            if rank > len(heads) * width:
                reason = f"{name}: the tap at {offset} has rank {rank}, and {len(heads)} heads of {width} numbers"
                raise UnsupportedError("C2A604", reason, "Take a convolution of lower rank, or wider or more heads.")
            for place, head in enumerate(heads):
                chosen, rows = (slice(each * width, (each + 1) * width) for each in (place, head))
                root = sizes[chosen].sqrt()
                for matrix, factor in (
                    (value.weight.data[rows], root[:, None] * right[chosen]),
                    (output.weight.data[:, rows].T, root[:, None] * left[:, chosen].T),
                ):
                    matrix.zero_()
                    matrix[: len(factor), start:] = factor.to(matrix)
        for bias in (value.bias, output.bias):
            if bias is not None:
                bias.data.zero_()
        if output.bias is not None and convolution.bias is not None:
            output.bias.data[start:] = convolution.bias.detach().to(output.bias)
