"""Hypothesis strategies over every convolution that torch.nn accepts, and over the images that each accepts.

Built constructively, so nothing is filtered out; examples shrink towards 1x1 kernels on 1x1 grids.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from conv2attn.theory.basis import MODES, Sides
from suite.operator_strategies import tuples_of
from suite.tensor_strategies import budget_of, integer_tensors, wide_tensors

DRAWN_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
FORWARD_KINDS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED_KINDS = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
LARGEST_KERNELS = {1: 5, 2: 4, 3: 3}
PADDED_MODES = [name for name, mode in MODES.items() if mode.padder]
FEW, SOME, FLAGS = st.integers(2, 3), st.integers(1, 3), st.booleans()
# Strategies that many draws need are built once: building and validating one takes longer than a draw from it.


@cache
def channels_of(groups: int) -> st.SearchStrategy[tuple[int, int, int]]:
    """(groups, d_in, d_out) with these groups, or with none."""
    kinds = [
        st.tuples(st.just(1), SOME, st.integers(1, 4)),
        st.tuples(st.just(groups), FEW.map(groups.__mul__), SOME.map(groups.__mul__)),
        st.just((groups, groups, groups)),
        st.tuples(st.just(groups), st.just(groups), FEW.map(groups.__mul__)),
    ]
    return st.one_of(kinds)


@st.composite
def groupings(draw: st.DrawFn) -> tuple[int, int, int]:
    """(groups, d_in, d_out): no groups, groups of several channels, depthwise, depthwise with a multiplier."""
    return draw(channels_of(draw(FEW)))


@cache
def along_axes(low: int, high: int, axes: int) -> st.SearchStrategy[tuple[int, ...]]:
    """A whole number for each axis."""
    return tuples_of(st.integers(low, high), axes)


@cache
def paddings_along(axes: int) -> st.SearchStrategy[tuple[int, ...] | str]:
    """The values of `padding` that torch takes."""
    return st.one_of(along_axes(0, 3, axes), st.sampled_from(["valid", "same"]))


@st.composite
def convolutions(
    draw: st.DrawFn,
    dimensions: Sequence[int] = (1, 2, 3),
    dtypes: Sequence[torch.dtype] = DRAWN_DTYPES,
    transposed: Sequence[bool] = (False, False, True),
    wide: bool = False,
) -> Any:
    """Convolution layers of torch.nn with any hyper-parameters, without gradients.

    Weights are whole numbers for which `images_for` finds images on which every partial sum is exact in the dtype;
    with `wide`, numbers of very different sizes.

    Args:
        dimensions, dtypes, transposed: what to draw numbers of axes, dtypes and the direction from.
    """
    axes, dtype = draw(st.sampled_from(list(dimensions))), draw(st.sampled_from(list(dtypes)))
    backwards = draw(st.sampled_from(list(transposed)))
    groups, d_in, d_out = draw(groupings())
    kernel_size = draw(along_axes(1, LARGEST_KERNELS[axes], axes))
    stride, dilation = draw(along_axes(1, 3, axes)), draw(along_axes(1, 3, axes))
    options: dict[str, Any] = {"dilation": dilation, "groups": groups, "bias": draw(FLAGS), "dtype": dtype}
    if backwards:
        options["padding"] = draw(along_axes(0, 3, axes))
        most = [max(s, d) - 1 for s, d in zip(stride, dilation, strict=True)]
        options["output_padding"] = tuple(draw(st.integers(0, limit)) for limit in most)
    else:
        options["padding"] = draw(paddings_along(axes))
        options["padding_mode"] = draw(st.sampled_from(PADDED_MODES))
        stride = (1,) * axes if options["padding"] == "same" else stride
    kind: Any = (TRANSPOSED_KINDS if backwards else FORWARD_KINDS)[axes]
    conv = kind(d_in, d_out, kernel_size, stride, **options).requires_grad_(False)
    budget, terms = budget_of(dtype), d_in // groups * torch.Size(kernel_size).numel()
    draw_into(draw, conv.weight, None if wide else budget // terms)
    if conv.bias is not None:
        draw_into(draw, conv.bias, None if wide else budget - largest_sum(conv))
    return conv


def draw_into(draw: st.DrawFn, tensor: Tensor, largest: int | None) -> None:
    """Draws whole numbers within +-`largest` into `tensor`; numbers of very different sizes if it is None."""
    shape, dtype = tensor.shape, tensor.dtype
    tensor.copy_(draw(wide_tensors(shape, dtype) if largest is None else integer_tensors(shape, dtype, largest)))


@st.composite
def images_for(
    draw: st.DrawFn, conv: Any, wide: bool = False, extra: int = 3, batches: Sequence[int | None] = (None, 1, 2, 3)
) -> Tensor:
    """Images that `conv` accepts, each side at most `extra` above its smallest; some channels-last or without a batch.

    Whole numbers on which every partial sum of the layer is exact; with `wide`, numbers of very different sizes.

    Args:
        batches: sizes of a batch to draw from; None for an image without one.
    """
    sides = [side + draw(st.integers(0, extra)) for side in smallest_sides(conv)]
    batch = draw(st.sampled_from(list(batches)))
    shape, dtype = (conv.in_channels, *sides) if batch is None else (batch, conv.in_channels, *sides), conv.weight.dtype
    if wide:
        image = draw(wide_tensors(shape, dtype))
    else:
        bias = 0 if conv.bias is None else int(conv.bias.abs().max())
        image = draw(integer_tensors(shape, dtype, (budget_of(dtype) - bias) // max(1, largest_sum(conv))))
    innermost = image.ndim == 4 and len(sides) == 2 and draw(FLAGS)
    return image.contiguous(memory_format=torch.channels_last) if innermost else image


def largest_sum(conv: Any) -> int:
    """The largest sum of |w| over all the weights that one output channel of `conv` reads through."""
    size = conv.weight.abs().double()
    if conv.transposed:
        return int(size.unflatten(0, (conv.groups, -1)).transpose(1, 2).flatten(3).sum((2, 3)).max())
    return int(size.flatten(1).sum(1).max())


def smallest_sides(conv: Any) -> Sides:
    """The least number of pixels along each axis for which `conv` has an output, reads some, and can pad."""
    spans = [d * (k - 1) + 1 for d, k in zip(conv.dilation, conv.kernel_size, strict=True)]
    if conv.transposed:
        axes = zip(conv.padding, spans, conv.output_padding, conv.stride, strict=True)
        return tuple(1 + max(0, -((span + extra - 1 - 2 * p) // s)) for p, span, extra, s in axes)
    if conv.padding == "same":
        around = [(span - 1, (span - 1) // 2, span // 2) for span in spans]
    else:
        amounts = (0,) * len(spans) if conv.padding == "valid" else conv.padding
        around = [(2 * p, p, p) for p in amounts]
    mode = MODES[conv.padding_mode]
    least = [max(span - total, mode.least_side(most)) for span, (total, _, most) in zip(spans, around, strict=True)]
    if conv.padding_mode != "zeros":
        return tuple(least)
    totals, befores, _ = zip(*around, strict=True)
    return tuple(map(first_side_read, least, totals, befores, spans, conv.stride, conv.dilation))


def first_side_read(least: int, total: int, before: int, span: int, stride: int, dilation: int) -> int:
    """The least side from `least` of which some tap reads a pixel, and not zeros alone.

    On images of which none does, the convolutions of oneDNN end the process (its issue 5942; torch's 195394).

    Examples:
        >>> first_side_read(1, total=6, before=3, span=3, stride=2, dilation=2)  # taps at -3, -1, 1, 3
        2
    """
    side = least
    while not any(
        any(0 <= start + tap < side for tap in range(0, span, dilation))
        for start in range(-before, side + total - before - span + 1, stride)
    ):
        side += 1
    return side
