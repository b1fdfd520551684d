"""Rows of the table of ONNX's operators: convolutions, pools, norms and recurrent layers."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from conv2attn.files.onnx_table import row


def padding_of(
    image: Tensor, kernel: Sequence[int], steps: Sequence[Sequence[int]], pads: Any, auto_pad: str
) -> list[tuple[int, int]]:
    """How much is added before and behind each axis; `steps` are strides and dilations."""
    axes = len(kernel)
    if auto_pad in ("NOTSET", "VALID"):
        pads = pads if pads and auto_pad == "NOTSET" else [0] * 2 * axes
        return list(zip(pads[:axes], pads[axes:], strict=True))
    totals = [
        max(0, (-(-side // stride) - 1) * stride + dilation * (size - 1) + 1 - side)
        for side, size, stride, dilation in zip(image.shape[2:], kernel, *steps, strict=True)
    ]
    return [(n // 2, n - n // 2) if auto_pad == "SAME_UPPER" else (n - n // 2, n // 2) for n in totals]


def padded(image: Tensor, around: Sequence[tuple[int, int]], value: float = 0.0) -> tuple[Tensor, list[int]]:
    """The image padded where both sides differ, and the padding that is left to the operator."""
    if all(before == after for before, after in around):
        return image, [before for before, _ in around]
    return F.pad(image, [side for pair in reversed(around) for side in pair], value=value), [0] * len(around)


@row("Conv")
def _(
    image: Tensor, weight: Tensor, bias: Any = None, *, auto_pad: str, kernel_shape: Any = None,
    strides: Any = None, dilations: Any = None, pads: Any = None, group: int,
) -> Tensor:  # fmt: skip
    ones = [1] * (weight.ndim - 2)
    strides, dilations = strides or ones, dilations or ones
    image, padding = padded(image, padding_of(image, weight.shape[2:], (strides, dilations), pads, auto_pad))
    return (F.conv1d, F.conv2d, F.conv3d)[len(ones) - 1](image, weight, bias, strides, padding, dilations, group)


@row("ConvTranspose", auto_pad=("NOTSET",))
def _(
    image: Tensor, weight: Tensor, bias: Any = None, *, auto_pad: str, kernel_shape: Any = None, strides: Any = None,
    dilations: Any = None, pads: Any = None, group: int, output_padding: Any = None,
) -> Tensor:  # fmt: skip
    ones = [1] * (weight.ndim - 2)
    around = padding_of(image, ones, (ones, ones), pads, auto_pad)
    least, more = [min(pair) for pair in around], output_padding or [0] * len(ones)
    convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[len(ones) - 1]
    out = convolve(image, weight, bias, strides or ones, least, more, group, dilations or ones)
    for axis, (pair, cut) in enumerate(zip(around, least, strict=True), 2):  # what one side loses beyond the other
        out = out.narrow(axis, pair[0] - cut, out.shape[axis] - sum(pair) + 2 * cut)
    return out


@row("MaxPool", storage_order=(0,))
def _(
    image: Tensor, *, kernel_shape: Any, auto_pad: str, strides: Any = None, dilations: Any = None, pads: Any = None,
    ceil_mode: int = 0, storage_order: int = 0,
) -> Tensor:  # fmt: skip
    ones = [1] * len(kernel_shape)
    strides, dilations = strides or ones, dilations or ones
    around = padding_of(image, kernel_shape, (strides, dilations), pads, auto_pad)
    image, padding = padded(image, around, -torch.inf)
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[len(ones) - 1]
    return pool(image, kernel_shape, strides, padding, dilations, bool(ceil_mode))


@row("AveragePool", ceil_mode=(0,))
def _(
    image: Tensor, *, kernel_shape: Any, auto_pad: str, strides: Any = None, pads: Any = None, ceil_mode: int = 0,
    count_include_pad: int,
) -> Tensor:  # fmt: skip
    ones = [1] * len(kernel_shape)
    around = padding_of(image, kernel_shape, (strides or ones, ones), pads, auto_pad)
    pool: Any = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[len(ones) - 1]
    if count_include_pad or all(before == after for before, after in around):
        image, padding = padded(image, around)
        return pool(image, kernel_shape, strides or ones, padding, count_include_pad=bool(count_include_pad))
    sums, counts = (
        pool(padded(each, around)[0], kernel_shape, strides or ones) for each in (image, image.new_ones(image.shape))
    )
    return sums / counts


row("GlobalAveragePool")(lambda image: image.mean(tuple(range(2, image.ndim)), keepdim=True))
row("GlobalMaxPool")(lambda image: image.amax(tuple(range(2, image.ndim)), keepdim=True))
row("InstanceNormalization", least=6)(
    lambda image, scale, bias, *, epsilon: F.instance_norm(image, weight=scale, bias=bias, eps=epsilon)
)


@row("BatchNormalization", least=9)
def _(
    image: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, *, epsilon: float, momentum: float,
    training_mode: int = 0,
) -> Tensor:  # fmt: skip
    own = None if training_mode else mean, None if training_mode else variance
    return F.batch_norm(image, own[0], own[1], scale, bias, bool(training_mode), eps=epsilon)


@row("LayerNormalization", stash_type=(1,))
def _(value: Tensor, scale: Tensor, bias: Any = None, *, axis: int, epsilon: float, stash_type: int) -> Tensor:
    return F.layer_norm(value, value.shape[axis % value.ndim :], scale, bias, epsilon)


@row("Dropout", settings=[1, 2], least=7)
def _(value: Tensor, share: Any = 0.5, training: Any = None, *, seed: int = 0, ratio: float = 0.5) -> Tensor:
    return F.dropout(value, float(share)) if training is not None and bool(training) else value


# Lengths of sequences and peepholes, operands 4 and 7, have no counterpart in torch.
GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
"""For each gate of torch the place of that gate in ONNX."""
FUNCTIONS = (["Sigmoid", "Tanh", "Tanh"], ["Sigmoid", "Tanh"], ["Tanh"])


@row(
    *GATES, least=7, outputs=3, absent=(4, 7), direction=("forward", "bidirectional"), layout=(0,), input_forget=(0,),
    linear_before_reset=(1,), activations=[names * n for names in FUNCTIONS for n in (1, 2)],
)  # fmt: skip
def _(
    value: Tensor, inner: Tensor, outer: Tensor, bias: Any = None, _: Any = None, *states: Any, name: str,
    hidden_size: int, direction: str, activations: Any = None, layout: int = 0, input_forget: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    sides = 1 + (direction == "bidirectional")

    def gates(matrix: Tensor) -> Tensor:
        parts = matrix.split(hidden_size)
        return torch.cat([parts[each] for each in GATES[name]])

    both = [(inner[n], outer[n], *(() if bias is None else bias[n].chunk(2))) for n in range(sides)]
    weights = [gates(matrix) for matrices in both for matrix in matrices]
    zeros = value.new_zeros(sides, value.shape[1], hidden_size)
    first = [zeros if each is None else each for each in (*states, None, None)][:2]
    settings = (weights, bias is not None, 1, 0.0, False, sides == 2, False)
    if name == "LSTM":
        out, *last = torch.lstm(value, first, *settings)
    else:
        out, *last = (torch.gru if name == "GRU" else torch.rnn_tanh)(value, first[0], *settings)
    return (out.unflatten(2, (sides, hidden_size)).transpose(1, 2), *last)
