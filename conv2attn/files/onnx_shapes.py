"""Rows of the table of ONNX's operators: shapes, and where numbers stand.

A shape is a plain array, since a size is a number: what is made of plain arrays alone, onnx computes.
"""

from functools import reduce
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from conv2attn.errors import UsageError
from conv2attn.files.onnx_table import Plain, as_tensor, number, row, sized


@row("Shape")
def _(value: Tensor, *, start: int = 0, end: int | None = None) -> Plain:
    return np.array(tuple(value.shape)[start:end], dtype=np.int64)


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
