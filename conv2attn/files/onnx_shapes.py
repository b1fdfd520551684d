"""Rows of the table of ONNX's operators: shapes, and where numbers stand.

A shape is a plain array, since a size is a number: what is made of plain arrays alone, onnx computes.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from conv2attn.errors import UsageError

Plain = np.ndarray[Any, Any]
LARGEST_MADE = 1 << 26  # numbers that a node makes out of a shape alone


def sized(shape: Any) -> list[int]:
    """A shape of which numbers are made.

    Raises:
        UsageError: it has more than 2^26 numbers (C2A202).
    """
    sides = [int(side) for side in shape]
    if np.prod(np.array(sides, dtype=np.float64)) > LARGEST_MADE:
        reason = f"a node of the ONNX model makes {'x'.join(map(str, sides))} numbers, more than 2^26"
        raise UsageError("C2A202", reason, "Pass smaller images.")
    return sides


def torch_order(pads: Any) -> list[int]:
    """Amounts before all axes and then behind all, as torch has them: in pairs, the last axis first.

    >>> torch_order([1, 2, 3, 4])  # before rows, columns; behind rows, columns
    [2, 4, 1, 3]
    """
    return [int(amount) for amount in np.reshape(pads, (2, -1)).T[::-1].flatten()]


def padded(image: Tensor, pads: Plain, constant: Any = 0, axes: Any = None, *, mode: str) -> Tensor:
    around = np.zeros((2, image.ndim), dtype=np.int64)
    around[:, range(image.ndim) if axes is None else axes] = np.reshape(pads, (2, -1))
    # torch pads the last axes, and by other modes than constants no batch and no channels.
    sides = torch_order(around if around[:, :2].any() else around[:, 2:])
    if mode == "constant":
        return F.pad(image, sides, value=constant)
    return F.pad(image, sides, {"edge": "replicate", "wrap": "circular"}.get(mode, mode))


def resized(
    image: Tensor,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    *,
    mode: str,
    nearest_mode: str,
    coordinate_transformation_mode: str,
) -> Tensor:
    factors = scales if sizes is None else sizes / np.array(image.shape)
    if any(factors[:2] != 1) or (mode == "nearest") != (coordinate_transformation_mode == "asymmetric"):
        reason = f"the ONNX model resizes as torch does not: {mode}, {coordinate_transformation_mode}"
        raise UsageError("C2A120", reason, "Export it again.")
    name = {"linear": ("linear", "bilinear", "trilinear")[image.ndim - 3], "cubic": "bicubic"}.get(mode, mode)
    corners = None if mode == "nearest" else coordinate_transformation_mode == "align_corners"
    if sizes is None:
        return F.interpolate(image, scale_factor=factors[2:].tolist(), mode=name, align_corners=corners)
    return F.interpolate(image, sizes[2:].tolist(), mode=name, align_corners=corners)


def sliced(value: Tensor, starts: Plain, ends: Plain, axes: Any = None, steps: Any = None) -> Tensor:
    axes, steps = range(len(starts)) if axes is None else axes, np.ones_like(starts) if steps is None else steps
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        # An end before the first number is none in Python, where -1 is the last.
        end = None if step < 0 and end < -value.shape[axis] else end
        places = range(value.shape[axis])[start:end:step]
        if step > 0:
            value = value[(slice(None),) * (axis % value.ndim) + (slice(places.start, places.stop, step),)]
        else:  # torch has no negative steps
            value = value.index_select(axis, torch.tensor(places, dtype=torch.long, device=value.device))
    return value


def reduction(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A row that reduces the axes of its second operand, or all."""
    return lambda value, axes=None, *, keepdims: function(
        value, list(range(value.ndim)) if axes is None else axes.tolist(), bool(keepdims)
    )


def depth_to_space(image: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    if mode == "DCR":
        image = image.unflatten(1, (blocksize**2, -1)).transpose(1, 2).flatten(1, 2)
    return F.pixel_shuffle(image, blocksize)


SHAPES: dict[str, Callable[..., Any]] = {
    "Expand": lambda value, shape: value.expand(torch.broadcast_shapes(value.shape, sized(shape))),
    "Pad": padded,
    "ReduceMax": reduction(torch.amax),
    "ReduceMean": reduction(torch.mean),
    "ReduceSum": reduction(torch.sum),
    "Reshape": lambda value, shape, *, allowzero=0: value.reshape(
        [side if side or allowzero else value.shape[axis] for axis, side in enumerate(shape.tolist())]
    ),
    "Resize": resized,
    "Slice": sliced,
    "Split": lambda value, sizes=None, *, axis, num_outputs=1: value.split(
        -(-value.shape[axis] // num_outputs) if sizes is None else sizes.tolist(), axis
    ),
    # A sequence of tensors is a list.
    "SplitToSequence": lambda value, sizes, *, axis: list(value.split(np.asarray(sizes).tolist(), axis)),
    "SequenceAt": lambda sequence, place: sequence[place],
    "Squeeze": lambda value, axes=None: value.squeeze() if axes is None else value.squeeze(tuple(axes.tolist())),
    "Unsqueeze": lambda value, axes: reduce(torch.unsqueeze, sorted(axes % (value.ndim + len(axes))), value),
}
"""Rows whose operands behind the first are plain arrays."""
MOVES: dict[str, Callable[..., Any]] = {
    "Concat": lambda *values, axis: torch.cat(values, axis),
    "DepthToSpace": depth_to_space,
    "Flatten": lambda value, *, axis: value.reshape(int(np.prod(value.shape[:axis], dtype=np.int64)), -1),
    "Gather": lambda value, indices, *, axis: value[(slice(None),) * (axis % value.ndim) + (indices,)],
    "ScatterND": lambda value, indices, updates: value.index_put(tuple(indices.unbind(-1)), updates),
    "Shape": lambda value, *, start=0, end=None: np.array(tuple(value.shape)[start:end], dtype=np.int64),
    "Transpose": lambda value, *, perm=None: value.permute(perm or tuple(range(value.ndim))[::-1]),
}
MADE: dict[str, Callable[..., Any]] = {
    "ConstantOfShape": lambda shape: shape,
    "Expand": lambda value, shape: shape,
    "Range": lambda start, limit, step: [max(0, (limit - start) // (step or 1))],
}
"""Operators that make numbers out of plain arrays, and the shape of what they make."""
