"""ONNX's operators as functions of torch, one row per operator, at opset 18: https://onnx.ai/onnx/operators.

A row gets the operands of its node by position: tensors; numbers for arrays without axes; and plain arrays after the
first operand for the rows of SHAPES. Its keyword-only parameters are the supported attributes; any other attribute must
have onnx's default. Unsupported nodes are refused when the file is read. A function that onnx defines by other
operators has a row only if it is a single function in torch.

>>> OPERATORS["HardSigmoid"](torch.tensor([-1.0, 2.0]), alpha=0.25, beta=0.5)
tensor([0.2500, 1.0000])
"""

import operator
from math import isclose
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from conv2attn.files.onnx_shapes import MOVES, SHAPES, Rows, torch_order

HONOURED = {
    "auto_pad": ("NOTSET", "SAME_UPPER"),
    "direction": ("forward", "bidirectional"),
    "nearest_mode": ("floor",),
    "coordinate_transformation_mode": ("asymmetric", "half_pixel", "align_corners"),
}
"""The supported values of attributes, if not all are."""


def windowed(name: str, image: Tensor, *operands: Any, pads: Any = (), fill: Any = 0.0, **settings: Any) -> Any:
    """Torch's windowed function for the image's number of axes, which pads both sides of an axis equally."""
    if pads[: len(pads) // 2] != pads[len(pads) // 2 :]:
        image, pads = F.pad(image, torch_order(pads), value=fill), ()
    settings = {"padding": pads[: len(pads) // 2] or 0} | settings
    return getattr(F, f"{name}{image.ndim - 2}d")(image, *operands, **settings)


def lstm(value: Tensor, *operands: Any, hidden_size: int, direction: str) -> tuple[Tensor, ...]:
    *weights, _, hidden, cell = (*operands, *[None] * 6)[:6]
    # The order of gates is input, output, forget, cell in ONNX, and input, forget, cell, output in torch.
    sides = [
        part.unflatten(1, (-1, 4, hidden_size))[:, :, [0, 2, 3, 1]].flatten(2, 3)
        for part in weights
        if part is not None
    ]
    flat = [matrix for side in zip(*sides, strict=True) for part in side for matrix in part]
    zeros = value.new_zeros(len(sides[0]), value.shape[1], hidden_size)
    states = [zeros if state is None else state for state in (hidden, cell)]
    both = direction == "bidirectional"
    result, *last = torch.lstm(value, states, flat, len(sides) == 3, 1, 0.0, False, both, False)
    return (result.unflatten(2, (len(zeros), -1)).transpose(1, 2), *last)


def exponentiated(base: Any, exponent: Any) -> Tensor:
    """Torch's function; ONNX gives the result the type of the base."""
    result = torch.pow(base, exponent)
    return result.to(base.dtype) if isinstance(base, Tensor) else result


def prelu(value: Tensor, slope: Any) -> Tensor:
    """Torch's function for one slope or one for each channel; others by two relus."""
    slope = torch.as_tensor(slope)
    if slope.numel() == 1 or (slope.ndim == value.ndim - 1 and slope.numel() == len(slope)):
        return F.prelu(value, slope.reshape(-1).to(value))
    return torch.relu(value) - slope * torch.relu(-value)


OPERATORS: Rows = {
    "Abs": torch.abs,
    "Add": operator.add,
    "AveragePool": lambda image, *, kernel_shape, strides=1, pads=(), count_include_pad: windowed(
        "avg_pool",
        image,
        pads=pads,
        kernel_size=kernel_shape,
        stride=strides,
        count_include_pad=bool(count_include_pad),
    ),
    "BatchNormalization": lambda image, scale, bias, mean, variance, *, epsilon, momentum, training_mode: F.batch_norm(
        image,
        None if training_mode else mean,
        None if training_mode else variance,
        scale,
        bias,
        bool(training_mode),
        eps=epsilon,
    ),
    "Cast": lambda value, *, to: value.to(to),
    "CastLike": lambda value, like: torch.as_tensor(value).to(like),
    "Clip": lambda value, low=None, high=None: value if low is None and high is None else torch.clamp(value, low, high),
    "Conv": lambda image, *weights, kernel_shape=(), strides=1, dilations=1, pads=(), group, auto_pad: windowed(
        "conv",
        image,
        *weights,
        pads=pads,
        stride=strides,
        dilation=dilations,
        groups=group,
        **({} if auto_pad == "NOTSET" else {"padding": "same"}),
    ),
    # Torch crops both sides of an axis equally, so the output is computed uncropped, then cropped by the pads.
    "ConvTranspose": lambda x, *weights, kernel_shape=(), strides=1, dilations=1, pads=(), group, output_padding=0: (
        F.pad(
            windowed(
                "conv_transpose",
                x,
                *weights,
                stride=strides,
                dilation=dilations,
                groups=group,
                output_padding=output_padding,
            ),
            [-amount for amount in torch_order(pads)],
        )
    ),
    "Cos": torch.cos,
    # Integer division truncates towards zero.
    "Div": lambda first, second: (
        first / second
        if torch.result_type(first, second).is_floating_point
        else torch.div(torch.as_tensor(first), second, rounding_mode="trunc")
    ),
    "Elu": lambda value, *, alpha: F.elu(value, alpha),
    "Equal": operator.eq,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Gelu": lambda value, *, approximate: F.gelu(value, approximate=approximate),
    "Gemm": lambda value, weight, bias=0, *, transB: F.linear(value, weight if transB else weight.T) + bias,
    "GlobalAveragePool": lambda image: image.mean(tuple(range(2, image.ndim)), keepdim=True),
    "Greater": operator.gt,
    # Torch's own function for its parameters: the file stores 1/6 in float32, hence isclose.
    "HardSigmoid": lambda value, *, alpha, beta: (
        F.hardsigmoid(value)
        if isclose(alpha, 1 / 6, rel_tol=1e-6) and beta == 0.5
        else torch.clamp(alpha * value + beta, 0, 1)
    ),
    "HardSwish": F.hardswish,
    "Identity": lambda value: value,
    "InstanceNormalization": lambda image, scale, bias, *, epsilon: F.instance_norm(
        image, weight=scale, bias=bias, eps=epsilon
    ),
    "LSTM": lstm,
    "LayerNormalization": lambda value, scale, bias=None, *, axis, epsilon: F.layer_norm(
        value, value.shape[axis % value.ndim :], scale, bias, epsilon
    ),
    "LeakyRelu": lambda value, *, alpha: F.leaky_relu(value, alpha),
    "Less": operator.lt,
    "Log": torch.log,
    "LogSoftmax": lambda value, *, axis: torch.log_softmax(value, axis),
    "MatMul": operator.matmul,
    "MaxPool": lambda image, *, kernel_shape, strides=1, dilations=1, pads=(), ceil_mode: windowed(
        "max_pool",
        image,
        pads=pads,
        fill=-torch.inf,
        kernel_size=kernel_shape,
        stride=strides,
        dilation=dilations,
        ceil_mode=bool(ceil_mode),
    ),
    "Mod": operator.mod,
    "Mul": operator.mul,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Or": operator.or_,
    "PRelu": prelu,
    "Pow": exponentiated,
    "Reciprocal": torch.reciprocal,
    "Relu": torch.relu,
    "Sigmoid": torch.sigmoid,
    "Sin": torch.sin,
    "Softmax": lambda value, *, axis: torch.softmax(value, axis),
    "Softplus": F.softplus,
    "Sqrt": torch.sqrt,
    "Sub": operator.sub,
    "Tanh": torch.tanh,
    "Where": lambda condition, first, second: torch.where(torch.as_tensor(condition), first, second),
    **MOVES,
    **SHAPES,
}
"""All operators that are read, by name."""
