"""Windows of the grid: a maximum, a mean, or a choice of pixels is off by no more than the worst pixel of the image."""

import math

import torch

from conv2attn.attention.hardness import FORMATS
from conv2attn.bounds import format_of
from conv2attn.equivalence.domain import SLACK, Carried, Stop
from conv2attn.equivalence.rules.registry import Call, rule, stored

CUBIC = 1.375  # the largest sum of |weights| of one axis: 1 + 2 |a| t (1 - t) for a = -3/4, at t = 1/2
CUBIC_ROUNDINGS = 512  # of its four weights: two sums of up to 36, six roundings each, and two of up to 5
EACH_AXIS = 8  # roundings of one axis of an interpolation: two weights, two products, a sum; counted with margin


def anywhere(call: Call, dimensions: int) -> Carried:
    """The largest on the whole grid, of the last `dimensions` axes."""
    return call.given.largest_over(range(call.tensor.ndim - dimensions, call.tensor.ndim))


def dimensions_of(call: Call) -> int:
    """The number in the name of a function: 2 of max_pool2d."""
    return int(next(filter(str.isdigit, call.name)))


def names(*patterns: str) -> list[str]:
    """The names of functions for grids of one, two and three axes."""
    return [pattern.format(axes) for pattern in patterns for axes in (1, 2, 3)]


@rule(*names("max_pool{}d", "max_pool{}d_with_indices", "_max_pool{}d"))
@rule(*names("adaptive_max_pool{}d", "adaptive_max_pool{}d_with_indices", "_adaptive_max_pool{}d"))
def _(call: Call) -> Carried:
    return anywhere(call, dimensions_of(call))


@rule(*names("avg_pool{}d"))
def _(call: Call) -> Carried:
    """A mean over the window, or over what of it lies on the image; zeros of the padding only make it smaller."""
    axes = dimensions_of(call)
    if call.argument("divisor_override") is not None:
        raise Stop("avg_pool with a divisor of its own")
    return mean(anywhere(call, axes), pixels_in(call.argument("kernel_size"), axes), call.dtype)


def mean(pixels: Carried, count: int, dtype: torch.dtype) -> Carried:
    """A mean of up to `count` pixels, whose sum does not overflow."""
    return pixels.below_overflow(count, dtype).rounded(count + 2, dtype)


def pixels_in(window: int | tuple[int, ...] | list[int], axes: int) -> int:
    """How many pixels a window has; one number stands for all axes."""
    sides = list(window) if isinstance(window, tuple | list) else [window]
    return math.prod(sides if len(sides) == axes else sides * axes)


@rule(*names("adaptive_avg_pool{}d"))
def _(call: Call) -> Carried:
    axes = dimensions_of(call)
    return mean(anywhere(call, axes), math.prod(call.tensor.shape[-axes:]), call.dtype)


@rule("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
@rule("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d")
def _(call: Call) -> Carried:
    return anywhere(call, dimensions_of(call))


@rule("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d")
def _(call: Call) -> Carried:
    """Weights are alike in both networks; linear ones are positive, of sum 1 but for rounding."""
    axes = dimensions_of(call)
    pixels = anywhere(call, axes)
    if call.name == "upsample_bicubic2d":
        pixels = cubic(pixels, call.dtype)
    return pixels.rounded(EACH_AXIS * axes, call.dtype)


def cubic(pixels: Carried, dtype: torch.dtype) -> Carried:
    """Weighed along two axes; the weights of half types are computed in float32, and rounded once."""
    stored_as = format_of(FORMATS[dtype])
    off = CUBIC_ROUNDINGS * format_of(stored_as.accumulator).unit_roundoff + 2 * stored_as.unit_roundoff
    return pixels.along(lambda each: each * (CUBIC + off) ** 2 * SLACK)


@rule("pad", "constant_pad_nd")
def _(call: Call) -> Carried:
    """Around the image stands a constant, or a copy of some of its pixels."""
    amounts = call.argument("pad")
    most = anywhere(call, len(amounts) // 2)
    if call.argument("mode", "constant") != "constant":
        return most
    constant = max(map(abs, stored(float(call.argument("value") or 0.0), call.dtype)))
    return Carried(torch.clamp(most.size, min=constant), most.error)


@rule("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
def _(call: Call) -> Carried:
    if call.argument("train") and call.argument("p") != 0:
        raise Stop(f"{call.name} in training mode")
    return call.given
