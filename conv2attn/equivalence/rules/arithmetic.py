"""Sums, products, means and maxima: what exact arithmetic makes of the bounds, then each side's rounding."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conv2attn.equivalence.domain import SLACK, Carried, Stop
from conv2attn.equivalence.rules.registry import Call, rule, stored


def operand(call: Call, item: Any, chosen: Callable[..., float] = max) -> Carried:
    """The bounds of a tensor or of a number, of which the largest that it may be rounded to counts."""
    if isinstance(item, Tensor):
        return call.bounds(item)
    size = chosen(map(abs, stored(float(item), call.dtype)))
    return Carried.of_constant(torch.tensor(size, dtype=torch.float64))


def pair(call: Call) -> tuple[Carried, Carried]:
    """The bounds of both operands."""
    return operand(call, call.first), operand(call, call.argument("other"))


@rule("add", "sub", "subtract", "rsub")
def _(call: Call) -> Carried:
    first, second = pair(call) if call.name != "rsub" else reversed(pair(call))
    alpha = call.argument("alpha", 1)
    factor = operand(call, alpha)
    size, error = (a + factor.size * b for a, b in ((first.size, second.size), (first.error, second.error)))
    summed = Carried(size * SLACK, error * SLACK)
    return summed.rounded(1 if alpha == 1 else 2, call.dtype)


@rule("mul", "multiply")
def _(call: Call) -> Carried:
    return product(*pair(call)).rounded(1, call.dtype)


@rule("square")
def _(call: Call) -> Carried:
    return product(call.given, call.given).rounded(1, call.dtype)


def product(first: Carried, second: Carried) -> Carried:
    """|a b - a' b'| <= |a| |b - b'| + |b'| |a - a'|."""
    error = first.size * second.error + (second.size + second.error) * first.error
    return Carried(first.size * second.size * SLACK, error * SLACK)


@rule("div", "divide", "true_divide")
def _(call: Call) -> Carried:
    divisor = call.argument("other")
    known, computed = operand(call, divisor, min), isinstance(divisor, Tensor) and call.computed(divisor)
    if computed or call.argument("rounding_mode") is not None:
        raise Stop("a quotient by what is computed, which may vanish" if computed else "a quotient that is rounded")
    given = operand(call, call.first)
    return Carried(given.size / known.size * SLACK, given.error / known.size * SLACK).rounded(2, call.dtype)


@rule("glu")
def _(call: Call) -> Carried:
    """a sigmoid(b) of two halves a, b, where the sigmoid is at most 1 and its slope at most 1/4."""
    axis = call.axes(call.argument("dim", -1))[0]
    whole = call.given.largest_over([axis])
    return Carried(whole.size * SLACK, whole.error * (1 + whole.size / 4) * SLACK).rounded(64, call.dtype)


@rule("maximum", "minimum", "fmax", "fmin")
def _(call: Call) -> Carried:
    first, second = pair(call)
    return Carried(torch.maximum(first.size, second.size), torch.maximum(first.error, second.error))


@rule("mean", "sum")
def _(call: Call) -> Carried:
    """Over axes that are said and are not the first, which is that of the images."""
    axes = call.axes(call.argument("dim"))
    if call.tensor.ndim > 1 and 0 in axes:
        raise Stop(f"a {call.name} over the images")
    count = math.prod(call.tensor.shape[axis] for axis in axes)
    most = call.given.largest_over(axes)
    summed = Carried(most.size * count * SLACK, most.error * count * SLACK)
    most = summed if call.name == "sum" else most.below_overflow(count, call.dtype)
    passed = most.rounded(count + 2, call.dtype)
    return passed if call.argument("keepdim") else passed.along(lambda each: squeezed(each, axes))


@rule("amax", "amin")
def _(call: Call) -> Carried:
    axes = call.axes(call.argument("dim"))
    most = call.given.largest_over(axes)
    return most if call.argument("keepdim") else most.along(lambda each: squeezed(each, axes))


@rule("pow")
def _(call: Call) -> Carried:
    if call.argument("exponent") != 2:
        raise Stop("a power that is not 2")
    return product(call.given, call.given).rounded(1, call.dtype)


@rule("max", "min")
def _(call: Call) -> Carried:
    """The largest or smallest of two tensors, of all numbers, or along an axis; its place is not known."""
    second = call.argument("dim", call.argument("other"))
    if isinstance(second, Tensor):
        first, other = call.given, call.bounds(second)
        return Carried(torch.maximum(first.size, other.size), torch.maximum(first.error, other.error))
    axes = call.axes(second)
    most = call.given.largest_over(axes)
    return most if call.argument("keepdim") else most.along(lambda each: squeezed(each, axes))


def squeezed(tensor: Tensor, axes: tuple[int, ...]) -> Tensor:
    """`tensor` without axes of length 1."""
    return tensor.reshape([side for axis, side in enumerate(tensor.shape) if axis not in axes])
