"""Rows of the table of ONNX's operators: functions of one number and of two, products, and reductions.

>>> OPERATORS["LeakyRelu"].compute(torch.tensor([-1.0, 2.0]), alpha=0.5)
tensor([-0.5000,  2.0000])
"""

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from conv2attn.files import onnx_layers, onnx_shapes  # noqa: F401  each enters its rows
from conv2attn.files.onnx_table import OPERATORS as OPERATORS
from conv2attn.files.onnx_table import Plain, as_tensor, number, row


def quotient(first: Any, second: Any) -> Any:
    """first / second; of whole numbers cut towards zero."""
    exact = all(not isinstance(each, float) and not as_tensor(each).is_floating_point() for each in (first, second))
    return torch.div(as_tensor(first), second, rounding_mode="trunc") if exact else first / second


UNARY = [
    "Abs",
    "Ceil",
    "Cos",
    "Erf",
    "Exp",
    "Floor",
    "IsNaN",
    "Log",
    "Neg",
    "Reciprocal",
    "Relu",
    "Round",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sqrt",
    "Tanh",
]
ALONE = {each: getattr(torch, each.lower()) for each in UNARY}
for each, function in {**ALONE, "HardSwish": F.hardswish, "Mish": F.mish, "Softplus": F.softplus}.items():
    row(each, least=6)(lambda value, function=function: function(value))
row("Identity")(lambda value: value)
row("Not")(lambda value: torch.logical_not(value))
PAIRS = {"Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Div": quotient, "And": operator.and_}
PAIRS |= {"Or": operator.or_, "Equal": operator.eq, "Greater": operator.gt, "Less": operator.lt}
PAIRS |= {"GreaterOrEqual": operator.ge, "LessOrEqual": operator.le}
for each, function in PAIRS.items():
    row(each, least=7)(lambda *pair, function=function: function(*map(number, pair)))


@row("Mod")
def _(first: Any, second: Any, *, fmod: int) -> Any:
    return (torch.fmod if fmod else torch.remainder)(number(first), number(second))


@row("Pow", settings=[1], least=7)
def _(base: Tensor, exponent: Plain) -> Tensor:
    return torch.pow(base, number(exponent) if exponent.size == 1 else as_tensor(exponent)).to(base.dtype)


@row("Max", "Min", least=8)
def _(*operands: Any, name: str) -> Tensor:
    like = next(each for each in operands if isinstance(each, Tensor))
    return reduce(torch.maximum if name == "Max" else torch.minimum, [as_tensor(each, like) for each in operands])


@row("Where")
def _(condition: Any, first: Any, second: Any) -> Tensor:
    like = next(each for each in (first, second, condition) if isinstance(each, Tensor))
    numbers = isinstance(first, Tensor) or isinstance(second, Tensor)  # two numbers would have torch's default dtype
    return torch.where(as_tensor(condition, like), number(first) if numbers else as_tensor(first, like), number(second))


@row("Clip", settings=[1, 2], least=6)
def _(value: Tensor, low: Any = None, high: Any = None, *, min: Any = None, max: Any = None) -> Tensor:
    return torch.clamp(value, number(min if low is None else low), number(max if high is None else high))


@row("Cast", "CastLike", least=6, round_mode=("up",), saturate=(1,))
def _(value: Any, like: Any = None, *, to: Any = None, round_mode: str = "", saturate: int = 1) -> Tensor:
    return as_tensor(value).to(to or as_tensor(like).dtype)


row("LeakyRelu", least=6)(lambda value, *, alpha: F.leaky_relu(value, alpha))
row("Elu", least=6)(lambda value, *, alpha: F.elu(value, alpha))
row("Gelu")(lambda value, *, approximate: F.gelu(value, approximate=approximate))


@row("HardSigmoid", least=6)
def _(value: Tensor, *, alpha: float, beta: float) -> Tensor:
    torchs = abs(alpha - 1 / 6) < 1e-7 and beta == 0.5
    return F.hardsigmoid(value) if torchs else torch.clamp(alpha * value + beta, 0, 1)


@row("PRelu", least=9)
def _(value: Tensor, slope: Tensor) -> Tensor:
    slope = as_tensor(slope)
    sides = (1,) * (value.ndim - slope.ndim) + tuple(slope.shape)
    if slope.numel() == 1 or (value.ndim > 1 and slope.numel() == sides[1] == value.shape[1]):
        return F.prelu(value, slope.flatten())
    return torch.where(value < 0, slope * value, value)


@row("Softmax", "LogSoftmax")
def _(value: Tensor, *, axis: int, name: str, opset: int) -> Tensor:
    function = torch.softmax if name == "Softmax" else torch.log_softmax
    if opset >= 13 or axis in (-1, value.ndim - 1):
        return function(value, axis)
    axis %= value.ndim  # before 13 all axes from this one on are one
    return function(value.flatten(axis), axis).reshape(value.shape)


row("MatMul")(lambda first, second: first @ second)


@row("Gemm", least=7)
def _(
    first: Tensor, second: Tensor, bias: Any = None, *, alpha: float, beta: float, transA: int = 0, transB: int = 0
) -> Tensor:
    first = first.T if transA else first
    if alpha == beta == 1 and transB:
        return F.linear(first, second, None if bias is None else as_tensor(bias))
    product = (first @ (second.T if transB else second)) * (alpha if alpha != 1 else 1)
    return product if bias is None else product + (bias if beta == 1 else beta * as_tensor(bias))


REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "ReduceMean": torch.mean,
    "ReduceSum": torch.sum,
    "ReduceMax": torch.amax,
    "ReduceMin": torch.amin,
    "ReduceProd": lambda value, axes, keepdim: reduce(lambda v, axis: v.prod(axis, keepdim), sorted(axes)[::-1], value),
    "ReduceL2": lambda value, axes, keepdim: torch.linalg.vector_norm(value, 2, axes, keepdim),
}


@row(*REDUCTIONS, settings=[1])
def _(
    value: Tensor, chosen: Any = None, *, axes: Any = None, keepdims: int, noop_with_empty_axes: int = 0, name: str
) -> Tensor:
    along = [int(axis) % value.ndim for axis in (chosen if chosen is not None else axes or ())]
    if not along and noop_with_empty_axes:
        return value
    return REDUCTIONS[name](value, along or list(range(value.ndim)), bool(keepdims))
