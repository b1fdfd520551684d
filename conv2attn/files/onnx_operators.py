"""The table of ONNX's operators as functions of torch, one row an operator, at opset 18: https://onnx.ai/onnx/operators.

A row gets the operands of its node by position: tensors; numbers, where the file stores one without axes; and plain
arrays behind the first operand of the rows of SHAPES. Its keyword-only parameters are the attributes that it honours;
any other must have onnx's default. What no row honours is refused when the file is read. An operator that onnx defines
by others stands here only if torch has it as one function.

>>> OPERATORS["HardSigmoid"](torch.tensor([-1.0, 2.0]), alpha=0.25, beta=0.5)
tensor([0.2500, 1.0000])
"""

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from conv2attn.files.onnx_shapes import MOVES, SHAPES, torch_order

HONOURED = {
    "auto_pad": ("NOTSET", "SAME_UPPER"),
    "direction": ("forward", "bidirectional"),
    "nearest_mode": ("floor",),
    "coordinate_transformation_mode": ("asymmetric", "half_pixel", "align_corners"),
}
"""The values of attributes that are honoured, where not all are."""


def quotient(first: Any, second: Any) -> Any:
    """first / second; of whole numbers cut towards zero."""
    exact = not any(torch.as_tensor(each).is_floating_point() for each in (first, second))
    return torch.div(torch.as_tensor(first), second, rounding_mode="trunc") if exact else first / second


def hard_sigmoid(value: Tensor, *, alpha: float, beta: float) -> Tensor:
    torchs = abs(alpha - 1 / 6) < 1e-7 and beta == 0.5
    return F.hardsigmoid(value) if torchs else torch.clamp(alpha * value + beta, 0, 1)


def gemm(value: Tensor, weight: Tensor, bias: Any = None, *, transB: int) -> Tensor:
    product = F.linear(value, weight if transB else weight.T)
    return product if bias is None else product + bias


def around(image: Tensor, pads: Any, value: float = 0.0) -> tuple[Tensor, Any]:
    """The image padded where both sides differ, and the padding that is left to the operator."""
    half = len(pads) // 2
    if pads[:half] == pads[half:]:
        return image, pads[:half] or 0
    return F.pad(image, torch_order(pads), value=value), 0


def convolved(
    image: Tensor, weight: Tensor, bias: Any = None, *, kernel_shape: Any = (), strides: Any = 1, dilations: Any = 1,
    pads: Any = (), group: int, auto_pad: str,
) -> Tensor:  # fmt: skip
    image, padding = around(image, pads) if auto_pad == "NOTSET" else (image, "same")
    return (F.conv1d, F.conv2d, F.conv3d)[image.ndim - 3](image, weight, bias, strides, padding, dilations, group)


def transposed(
    image: Tensor, weight: Tensor, bias: Any = None, *, kernel_shape: Any = (), strides: Any = 1, dilations: Any = 1,
    pads: Any = (), group: int, output_padding: Any = 0,
) -> Tensor:  # fmt: skip
    convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[image.ndim - 3]
    whole = convolve(image, weight, bias, strides, 0, output_padding, group, dilations)
    return F.pad(whole, [-amount for amount in torch_order(pads)])


def largest(
    image: Tensor, *, kernel_shape: Any, strides: Any = 1, dilations: Any = 1, pads: Any = (), ceil_mode: int
) -> Tensor:
    image, padding = around(image, pads, -torch.inf)
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[image.ndim - 3]
    return pool(image, kernel_shape, strides, padding, dilations, bool(ceil_mode))


def lstm(
    value: Tensor, inner: Tensor, outer: Tensor, bias: Any = None, _: None = None, *states: Any, hidden_size: int,
    direction: str,
) -> tuple[Tensor, ...]:  # fmt: skip
    def gates(matrix: Tensor) -> Tensor:
        into, out, forget, content = matrix.split(hidden_size)
        return torch.cat([into, forget, content, out])

    weights = list[Tensor]()
    for side in range(len(inner)):
        weights += [gates(inner[side]), gates(outer[side])]
        weights += [] if bias is None else map(gates, bias[side].chunk(2))
    zeros = value.new_zeros(len(inner), value.shape[1], hidden_size)
    first = [zeros if state is None else state for state in (*states, None, None)][:2]
    result, *last = torch.lstm(value, first, weights, bias is not None, 1, 0.0, False, len(inner) == 2, False)
    return (result.unflatten(2, (len(inner), -1)).transpose(1, 2), *last)


OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": operator.add,
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
    "Clip": torch.clamp,
    "Conv": convolved,
    "ConvTranspose": transposed,
    "Div": quotient,
    "Equal": operator.eq,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Gelu": lambda value, *, approximate: F.gelu(value, approximate=approximate),
    "Gemm": gemm,
    "GlobalAveragePool": lambda image: image.mean(tuple(range(2, image.ndim)), keepdim=True),
    "Greater": operator.gt,
    "HardSigmoid": hard_sigmoid,
    "HardSwish": F.hardswish,
    "Identity": lambda value: value,
    "InstanceNormalization": lambda image, scale, bias, *, epsilon: F.instance_norm(
        image, weight=scale, bias=bias, eps=epsilon
    ),
    "LSTM": lstm,
    "LayerNormalization": lambda value, scale, bias=None, *, axis, epsilon: F.layer_norm(
        value, value.shape[axis % value.ndim :], scale, bias, epsilon
    ),
    "Less": operator.lt,
    "Log": torch.log,
    "MatMul": operator.matmul,
    "MaxPool": largest,
    "Mod": operator.mod,
    "Mul": operator.mul,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Or": operator.or_,
    "Pow": torch.pow,
    "Relu": torch.relu,
    "Sigmoid": torch.sigmoid,
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
