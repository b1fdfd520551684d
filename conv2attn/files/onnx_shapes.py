"""Rows of the table of ONNX's operators: shapes, and operators that move numbers.

A shape is a plain array, since a size is a number. Results that depend on plain arrays alone are computed by onnx.
"""

from collections.abc import Callable
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from conv2attn.errors import UsageError

Plain = np.ndarray[Any, Any]
LARGEST_MADE = 1 << 26  # most numbers created from a shape alone


def sized(shape: Any) -> list[int]:
    """The shape of numbers to create.

    Raises:
        UsageError: the shape has more than 2^26 numbers (C2A202).
    """
    sides = [int(side) for side in shape]
    if np.prod(np.array(sides, dtype=np.float64)) > LARGEST_MADE:
        reason = f"a node of the ONNX model creates {'x'.join(map(str, sides))} numbers, more than 2^26"
        raise UsageError("C2A202", reason, "Pass smaller images.")
    return sides


def torch_order(pads: Any) -> list[int]:
    """Converts ONNX's pads (all amounts before, then all after) to torch's order: pairs, the last axis first.

    >>> torch_order([1, 2, 3, 4])  # before rows, columns; behind rows, columns
    [2, 4, 1, 3]
    """
    return [int(amount) for amount in np.reshape(pads, (2, -1)).T[::-1].flatten()]


def padded(image: Tensor, pads: Any, constant: Any = 0, axes: Any = None, *, mode: str) -> Tensor:
    amounts = np.zeros((2, image.ndim), dtype=np.int64)
    amounts[:, range(image.ndim) if axes is None else axes] = np.reshape(pads, (2, -1))
    if mode == "constant":
        return F.pad(image, torch_order(amounts), value=constant)
    # In other modes torch pads only the last axes.
    sides = torch_order(amounts if amounts[:, :2].any() else amounts[:, 2:])
    return F.pad(image, sides, {"edge": "replicate", "wrap": "circular"}.get(mode, mode))


def resized(
    image: Tensor, roi: Any = None, scales: Any = None, sizes: Any = None, *, mode: str, nearest_mode: str,
    coordinate_transformation_mode: str,
) -> Tensor:  # fmt: skip
    smooth, places = mode != "nearest", coordinate_transformation_mode
    whole = scales[:2] == [1, 1] if sizes is None else sizes[:2] == list(image.shape[:2])
    if not whole:
        reason = f"the ONNX model resizes as torch does not: {mode}, {places}"
        raise UsageError("C2A120", reason, "Export it again.")
    return F.interpolate(
        image,
        size=sizes and sizes[2:],
        scale_factor=None if sizes else scales[2:],
        mode={"linear": ("linear", "bilinear", "trilinear")[image.ndim - 3], "cubic": "bicubic"}.get(mode, mode),
        align_corners=places == "align_corners" if smooth else None,
    )


def listed(axes: Any) -> Any:
    """Axes as a list, if there are any; exporters write one axis without brackets too."""
    return [axes] if isinstance(axes, int) else axes


def sliced(value: Tensor, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Tensor:
    axes, steps = axes or range(len(starts)), steps or [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        # An end before the first number becomes None in Python, where -1 means the last.
        places = range(value.shape[axis])[start : None if step < 0 and end < -value.shape[axis] else end : step]
        # A torch slice is a view, but supports no negative steps.
        index = slice(places.start, places.stop, step) if step > 0 else torch.tensor(places, device=value.device)
        value = value[(slice(None),) * (axis % value.ndim) + (index,)]
    return value


def reduction(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A row that reduces the axes of its second operand, or all."""
    return lambda value, axes=(), *, keepdims: function(value, listed(axes), bool(keepdims))


Rows = dict[str, Callable[..., Any]]
SHAPES: Rows = {
    "Expand": lambda value, shape: value.expand(torch.broadcast_shapes(value.shape, sized(shape))),
    "Pad": padded,
    "ReduceMax": reduction(torch.amax),
    "ReduceMean": reduction(torch.mean),
    "ReduceSum": reduction(torch.sum),
    "Reshape": lambda value, shape, *, allowzero=0: value.reshape(
        [side if side or allowzero else value.shape[axis] for axis, side in enumerate(shape)]
    ),
    "Resize": resized,
    "Slice": sliced,
    "Split": lambda value, sizes=None, *, axis, num_outputs=1: value.split(
        sizes or -(-value.shape[axis] // num_outputs), axis
    ),
    # A sequence of tensors is a list.
    "SplitToSequence": lambda value, sizes, *, axis: list(value.split(sizes, axis)),
    "SequenceAt": lambda sequence, place: sequence[place],
    "Squeeze": lambda value, axes=None: value.squeeze() if axes is None else value.squeeze(tuple(listed(axes))),
    "Tile": lambda value, times: value.repeat(times),
    "Unsqueeze": lambda value, axes: reduce(
        torch.unsqueeze, sorted(axis % (value.ndim + len(listed(axes))) for axis in listed(axes)), value
    ),
}
"""Rows whose operands after the first are plain: numbers and lists of them."""
MOVES: Rows = {
    "Concat": lambda *values, axis: torch.cat(values, axis),
    "DepthToSpace": lambda image, *, blocksize, mode: F.pixel_shuffle(
        image if mode == "CRD" else image.unflatten(1, (blocksize**2, -1)).transpose(1, 2).flatten(1, 2), blocksize
    ),
    "Flatten": lambda value, *, axis: value.reshape(prod(value.shape[:axis]), -1),
    "Gather": lambda value, indices, *, axis: value[(slice(None),) * (axis % value.ndim) + (indices,)],
    "ScatterND": lambda value, indices, updates: value.index_put(tuple(indices.unbind(-1)), updates),
    "Shape": lambda value, *, start=0, end=None: np.array(tuple(value.shape)[start:end], dtype=np.int64),
    "Transpose": lambda value, *, perm=None: value.permute(perm or tuple(range(value.ndim))[::-1]),
}
MADE: Rows = {
    "ConstantOfShape": lambda shape: shape,
    "Expand": lambda value, shape: shape,
    "Range": lambda start, limit, step: [max(0, (limit - start) // (step or 1))],
}
"""Operators that create numbers from plain arrays, and the shape of their results."""
