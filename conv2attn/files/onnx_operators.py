"""The operators of ONNX as operators of torch, one row an operator.

A row gets the operands of its node: tensors; plain arrays where they are settings, such as shapes and axes, or have no
axes; None where the node has none. Its keyword-only parameters are the attributes that it honours, with the values of
`only` if not all. What no row honours is refused when the file is read, never at a call. Where onnx defines an operator
by others, a row stands here only if torch has it as one function. Source: https://onnx.ai/onnx/operators.

>>> OPERATORS["LeakyRelu"].compute(torch.tensor([-1.0, 2.0]), alpha=0.5)
tensor([-0.5000,  2.0000])
"""

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from conv2attn.errors import UsageError

Plain = np.ndarray[Any, Any]
LARGEST_MADE = 1 << 26  # numbers that a node makes out of a shape alone
OF_THE_NODE = ("name", "opset", "count")
"""Parameters that are no attributes: the operator's name, the opset of the file, and how many outputs the node has."""


@final
@dataclass(frozen=True)
class OnnxOperator:
    """How an operator is computed.

    Args:
        compute: operands, and attributes by name -> the output, or a tuple of outputs.
        settings: positions of operands that are plain arrays.
        least: the first opset in which the operator has this meaning.
        outputs: how many of its outputs may be read.
        only: the values of attributes that are honoured, where not all are.
    """

    compute: Callable[..., Any]
    settings: Sequence[int] = ()
    least: int = 1
    outputs: int = 1
    only: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def parameters(self) -> list[str]:
        """The names of the keyword-only parameters."""
        kinds = inspect.signature(self.compute).parameters.values()
        return [each.name for each in kinds if each.kind is each.KEYWORD_ONLY]


OPERATORS: dict[str, OnnxOperator] = {}
"""All operators that are read, by name."""


def row(
    *names: str, settings: Sequence[int] = (), least: int = 1, outputs: int = 1, **only: Sequence[Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enters a function in the table, under each of the names."""

    def enter(compute: Callable[..., Any]) -> Callable[..., Any]:
        OPERATORS.update(dict.fromkeys(names, OnnxOperator(compute, settings, least, outputs, only)))
        return compute

    return enter


def number(value: Any) -> Any:
    """A plain array without axes as a number of Python, which takes the dtype of the tensor beside it."""
    return value if isinstance(value, Tensor) or value is None else np.asarray(value).item()


def as_tensor(value: Any, like: Any = None) -> Tensor:
    """An operand as a tensor, also without axes."""
    return value if isinstance(value, Tensor) else torch.from_numpy(np.array(value)).to(getattr(like, "device", None))


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


# Shapes. A shape is a plain array, since a size is a number: what is made of plain arrays alone, onnx computes.


@row("Shape")
def _(value: Tensor, *, start: int = 0, end: int | None = None) -> Plain:
    return np.array(tuple(value.shape)[start:end], dtype=np.int64)


def sized(shape: Any) -> list[int]:
    """A shape of which numbers are made.

    Raises:
        UsageError: it has more than 2^26 numbers (C2A202).
    """
    sides = [int(each) for each in shape]
    if np.prod(np.array(sides, dtype=np.float64)) > LARGEST_MADE:
        reason = f"a node of the ONNX model makes {'x'.join(map(str, sides))} numbers, more than 2^26"
        raise UsageError("C2A202", reason, "Pass smaller images.")
    return sides


@row("ConstantOfShape", settings=[0])
def _(shape: Plain, *, value: Any = None) -> Plain:
    filled = np.zeros(1, np.float32) if value is None else np.asarray(value).flatten()
    return np.full(sized(shape), filled[0], filled.dtype)


@row("Range", settings=[0, 1, 2])
def _(start: Plain, limit: Plain, step: Plain) -> Plain:
    sized([max(0, (number(limit) - number(start)) // (number(step) or 1))])
    return np.arange(number(start), number(limit), number(step), dtype=start.dtype)


@row("Reshape", settings=[1], least=5)
def _(value: Tensor, shape: Plain, *, allowzero: int = 0) -> Tensor:
    return value.reshape([value.shape[n] if not allowzero and not side else int(side) for n, side in enumerate(shape)])


@row("Flatten")
def _(value: Tensor, *, axis: int) -> Tensor:
    if axis == 1 and value.ndim > 1:
        return value.flatten(1)
    return value.reshape(int(np.prod(value.shape[: axis + value.ndim if axis < 0 else axis], dtype=np.int64)), -1)


@row("Squeeze", settings=[1])
def _(value: Tensor, chosen: Any = None, *, axes: Any = None) -> Tensor:
    along = axes if chosen is None else chosen
    return value.squeeze() if along is None else value.squeeze(tuple(int(axis) for axis in along))


@row("Unsqueeze", settings=[1])
def _(value: Tensor, chosen: Any = None, *, axes: Any = None) -> Tensor:
    along = axes if chosen is None else chosen
    return reduce(torch.unsqueeze, sorted(int(axis) % (value.ndim + len(along)) for axis in along), value)


row("Transpose")(lambda value, *, perm=None: value.permute(perm or tuple(reversed(range(value.ndim)))))
row("Expand", settings=[1])(lambda value, shape: value.expand(torch.broadcast_shapes(value.shape, sized(shape))))
row("Tile", settings=[1], least=6)(lambda value, repeats: value.repeat([int(each) for each in repeats]))
row("CumSum", settings=[1], exclusive=(0,), reverse=(0,))(
    lambda value, axis, *, exclusive=0, reverse=0: value.cumsum(int(axis))
)
row("Trilu", settings=[1])(
    lambda value, diagonal=0, *, upper: (torch.triu if upper else torch.tril)(as_tensor(value), int(diagonal))
)
row("Concat", least=4)(lambda *values, axis: torch.cat([as_tensor(each) for each in values], axis))
row("ScatterND", reduction=("none",))(
    lambda value, indices, updates, *, reduction="none": value.index_put(tuple(indices.unbind(-1)), updates)
)


@row("Split", settings=[1], outputs=1 << 16)
def _(
    value: Tensor, sizes: Any = None, *, axis: int, split: Any = None, num_outputs: int = 0, count: int
) -> tuple[Tensor, ...]:
    parts = split if sizes is None else [int(each) for each in sizes]
    return value.split(-(-value.shape[axis] // (num_outputs or count)) if parts is None else parts, axis)


@row("SplitToSequence", settings=[1], least=11, keepdims=(1,))
def _(value: Tensor, sizes: Plain, *, axis: int, keepdims: int) -> tuple[list[Tensor]]:
    return (list(value.split(sizes.tolist(), axis)),)


row("SequenceAt", settings=[1], least=11)(lambda tensors, place: tensors[int(place)])


@row("Slice", settings=[1, 2, 3, 4])
def _(
    value: Tensor, first: Any = None, last: Any = None, chosen: Any = None, steps: Any = None, *, starts: Any = None,
    ends: Any = None, axes: Any = None,
) -> Tensor:  # fmt: skip
    starts, ends, axes = (b if a is None else a for a, b in ((first, starts), (last, ends), (chosen, axes)))
    axes, steps = range(len(starts)) if axes is None else axes, [1] * len(starts) if steps is None else steps
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        side = value.shape[int(axis)]
        # An end before the first number is none in Python, where -1 is the last.
        places = range(side)[slice(int(start), None if step < 0 and end < -side else int(end), int(step))]
        index: tuple[Any, ...] = (slice(None),) * (int(axis) % value.ndim)
        if step > 0:
            value = value[(*index, slice(places.start, places.stop, places.step))]
        else:  # torch has no negative steps
            whole = len(places) == side
            value = value.flip(int(axis)) if whole else value[(*index, torch.tensor(list(places), dtype=torch.long))]
    return value


@row("Gather")
def _(value: Any, indices: Any, *, axis: int) -> Tensor:
    if not isinstance(indices, Tensor):
        return value.select(axis, int(indices))
    value = as_tensor(value, indices)
    if axis == 0 and value.ndim == 2 and value.is_floating_point():
        return F.embedding(indices, value)
    axis %= value.ndim
    chosen = value.index_select(
        axis, indices.remainder(value.shape[axis]).flatten()
    )  # those below 0 count from the end
    return chosen.reshape((*value.shape[:axis], *indices.shape, *value.shape[axis + 1 :]))


PADDING = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


@row("Pad", settings=[1, 2, 3], mode=tuple(PADDING))
def _(
    image: Tensor, amounts: Any = None, constant: Any = None, axes: Any = None, *, mode: str, pads: Any = None,
    value: float = 0.0,
) -> Tensor:  # fmt: skip
    amounts = [int(each) for each in (pads if amounts is None else amounts)]
    chosen = range(image.ndim) if axes is None else [int(axis) % image.ndim for axis in axes]
    around = dict(zip(chosen, zip(amounts[: len(chosen)], amounts[len(chosen) :], strict=True), strict=True))
    # torch pads the last axes, and all but constants leave the first two as they are.
    first = min((axis for axis, pair in around.items() if any(pair)), default=image.ndim)
    first = first if mode == "constant" else min(first, 2)
    sides = [side for axis in range(image.ndim - 1, first - 1, -1) for side in around.get(axis, (0, 0))]
    filled = value if constant is None else number(constant)
    return F.pad(image, sides, mode=PADDING[mode], **({"value": filled} if mode == "constant" else {}))


@row("DepthToSpace", mode=("DCR", "CRD"))
def _(image: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    if mode == "DCR":
        image = image.unflatten(1, (blocksize**2, -1)).transpose(1, 2).flatten(1, 2)
    return F.pixel_shuffle(image, blocksize)


RESIZED = {"nearest": ("asymmetric",), "linear": ("half_pixel", "pytorch_half_pixel", "align_corners")}
RESIZED["cubic"] = RESIZED["linear"]
"""By mode where it may read; torch has no others."""


@row(
    "Resize", settings=[1, 2, 3], least=11, mode=tuple(RESIZED), nearest_mode=("floor",), cubic_coeff_a=(-0.75,),
    exclude_outside=(0,), antialias=(0,), keep_aspect_ratio_policy=("stretch",),
    coordinate_transformation_mode=(*RESIZED["nearest"], *RESIZED["linear"]),
)  # fmt: skip
def _(
    image: Tensor, roi: Any = None, scales: Any = None, sizes: Any = None, *, mode: str, nearest_mode: str,
    cubic_coeff_a: float, exclude_outside: int, extrapolation_value: float, coordinate_transformation_mode: str,
    antialias: int = 0, keep_aspect_ratio_policy: str = "",
) -> Tensor:  # fmt: skip
    where = coordinate_transformation_mode
    name = {"linear": ("linear", "bilinear", "trilinear")[image.ndim - 3], "cubic": "bicubic"}.get(mode, mode)
    options: Any = {} if mode == "nearest" else {"align_corners": where == "align_corners"}
    by_size = sizes is not None and len(sizes) > 0
    scales = [a / b for a, b in zip(sizes, image.shape, strict=True)] if by_size else [float(each) for each in scales]
    if scales[:2] != [1, 1] or where not in RESIZED[mode]:
        raise UsageError("C2A120", f"the ONNX model resizes as torch does not: {mode}, {where}", "Export it again.")
    options |= {"size": [int(side) for side in sizes[2:]]} if by_size else {"scale_factor": scales[2:]}
    for axis, scale in enumerate(scales[2:], 2):  # a side of one pixel is then the first pixel
        if where == "pytorch_half_pixel" and int(image.shape[axis] * scale) == 1:
            image = image.narrow(axis, 0, 1)
    return F.interpolate(image, mode=name, **options)


GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
"""For each gate of torch the place of that gate in ONNX."""
FUNCTIONS = (["Sigmoid", "Tanh", "Tanh"], ["Sigmoid", "Tanh"], ["Tanh"])


@row(
    *GATES, settings=[4], least=7, outputs=3, direction=("forward", "bidirectional"), layout=(0,), input_forget=(0,),
    linear_before_reset=(1,), activations=[names * n for names in FUNCTIONS for n in (1, 2)],
)  # fmt: skip
def _(
    value: Tensor, inner: Tensor, outer: Tensor, bias: Any = None, lengths: Any = None, *states: Any, name: str,
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
