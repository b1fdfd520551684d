"""The rules of balls: how far each operator carries an error, and what rounding its result adds.

`tests/equality/edges/running_error.py` holds every rule to torch's results in float32, at inputs anywhere in a ball.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.running_error.ball import (
    RULES,
    Ball,
    NoRule,
    error_of,
    errors,
    is_ball,
    moved,
    rounded,
    sizes,
    value_of,
    values,
)

MOVES = (
    "view", "_unsafe_view", "reshape", "permute", "transpose", "t", "expand", "slice", "select", "unsqueeze",
    "squeeze", "cat", "stack", "split", "unbind", "alias", "split_with_sizes", "clone", "detach", "reflection_pad1d",
    "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "flip", "roll", "replication_pad2d",
    "replication_pad3d", "constant_pad_nd", "as_strided", "repeat", "index", "gather", "im2col", "unfold",
    "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "upsample_nearest1d", "upsample_nearest2d",
    "upsample_nearest3d", "diagonal", "index_select",
)  # fmt: skip
LIPSCHITZ = {
    "relu": 1.0, "abs": 1.0, "neg": 1.0, "hardtanh": 1.0, "clamp": 1.0, "clamp_min": 1.0, "clamp_max": 1.0,
    "tanh": 1.0, "sin": 1.0, "cos": 1.0, "atan": 1.0, "softplus": 1.0,
    "sigmoid": 0.25,  # at 0
    "hardsigmoid": 0.16667,
    "hardswish": 1.5,  # at 3, from below
    "erf": 1.1284,  # 2 / sqrt(pi), at 0
    "gelu": 1.1291,  # at sqrt(2); 1.12902 with approximate="tanh"
    "silu": 1.0999,  # at 2.3994
    "mish": 1.0885,  # at 1.4908
}  # fmt: skip
"""Constants L with |f(x) - f(y)| <= L |x - y|: the largest slope, rounded up."""
ULPS = 8.0
"""Functions are computed within so many roundoffs of |x| + |f(x)|: an assumption on torch's kernels that a law measures
on every function of these tables."""
WINDOWS = ("max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d", "amax", "max")
AVERAGES = ("sum", "mean", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
MONOTONE = ("exp", "sqrt", "rsqrt", "log", "reciprocal", "expm1", "log1p")
CONSTANT = (
    "zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty",
)  # fmt: skip
Rule = Callable[..., Any]


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for the operators with these names."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def alone(func: Any, args: Sequence[Any]) -> Ball:
    """The first argument, where no other is a ball.

    Raises:
        NoRule: another argument is one.
    """
    if not is_ball(args[0]) or any(is_ball(each) for each in args[1:]):
        raise NoRule(f"{func.overloadpacket.__name__} with arguments that depend on the image")
    ball: Ball = args[0]
    return ball


@rule(*MOVES)
def rearrange(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """Numbers change their places, and their errors with them."""
    value = func(*values(args), **values(kwargs))
    if func.overloadpacket.__name__ == "constant_pad_nd":
        return moved(value, func(*errors(args[:2]), 0.0), u)
    return moved(value, func(*errors(args), **errors(kwargs)), u)


@rule(*CONSTANT)
def constant(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """A constant in the shape of a tensor, into which balls can be written."""
    value = func(*values(args), **values(kwargs))
    return moved(value, torch.zeros_like(value), u) if value.dtype == torch.float64 else value


@rule(*LIPSCHITZ)
def lipschitz(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """A function that moves no two numbers further apart than by its constant."""
    ball, value = alone(func, args), func(*values(args), **values(kwargs))
    size = ball.value.abs() + ball.error + value.abs()
    return rounded(value, LIPSCHITZ[func.overloadpacket.__name__] * ball.error + ULPS * u * size, u)


@rule("leaky_relu", "elu")
def leaking(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """Two slopes: 1, and a product of arguments; each is at most the product of those above 1."""
    ball, value = alone(func, args), func(*values(args))
    slope = math.prod(max(1.0, abs(each)) for each in args[1:])
    return rounded(value, slope * (ball.error + ULPS * u * (ball.value.abs() + ball.error)), u)


@rule(*WINDOWS)
def window(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """The largest number of a window is off by at most the largest error in it."""
    value, error = func(*values(args), **values(kwargs)), func(*errors(args), **errors(kwargs))
    if isinstance(value, tuple):
        return (moved(value[0], error[0], u), *value[1:])
    return moved(value, error, u)


@rule(*AVERAGES)
def average(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """Sums and means: errors add up, and each number is rounded once a term."""
    ball, value = alone(func, args), func(*values(args), **values(kwargs))
    terms = 2 + most_terms(func.overloadpacket.__name__, ball, value, args)
    error = func(*errors(args), **errors(kwargs)).abs()
    return rounded(value, error + growth(terms, u) * func(*sizes(args), **sizes(kwargs)).abs(), u, terms)


def most_terms(name: str, ball: Ball, value: Tensor, args: Any) -> int:
    """The largest number of terms in an average."""
    if "adaptive" in name:
        axes = range(-len(args[1]), 0)
        return math.prod(-(-ball.shape[axis] // max(1, value.shape[axis])) + 1 for axis in axes)
    if "pool" in name:
        return math.prod([*args[1]] * (int(name[-2]) if len(args[1]) == 1 else 1))
    return ball.numel() // max(1, value.numel())


@rule(*MONOTONE)
def monotone(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """A monotone function: the ends of the interval bound the error, unless it holds a pole."""
    ball = alone(func, args)
    value = func(ball.value)
    ends = [(func(ball.value + sign * ball.error) - value).abs().nan_to_num(math.inf, math.inf) for sign in (1, -1)]
    error = torch.maximum(*ends)
    if func.overloadpacket.__name__ == "reciprocal":
        error = error.masked_fill(ball.value.abs() <= ball.error, math.inf)
    return rounded(value, error + ULPS * u * (value.abs() + error), u)


@rule("convolution", "mm", "bmm", "dot", "mv")
def product(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """Sums of products of two tensors; a third is added."""
    first, second, *rest = args
    addend: Any = None
    if func.overloadpacket.__name__ == "convolution":
        addend, rest = rest[0], [None, *rest[1:]]
        terms = second[0].numel() if not rest[4] else second.numel() // second.shape[1]
    else:
        terms = first.shape[-1]
    compute = lambda a, b: func(a, b, *rest, **kwargs)  # noqa: E731
    value = compute(value_of(first), value_of(second))
    (a, ea), (b, eb) = ((value_of(each).abs(), error_of(each)) for each in (first, second))
    error = growth(terms + 2, u) * compute(a + ea, b + eb)
    error = error + (compute(ea, b + eb) if is_ball(first) else 0) + (compute(a, eb) if is_ball(second) else 0)
    result = rounded(value, error, u, terms)
    if addend is None:
        return result
    return result + addend.reshape(-1, *[1] * (value.ndim - 2))


def growth(terms: int, u: float) -> float:
    """gamma_n = n u / (1 - n u), infinite where it says nothing."""
    return terms * u / (1 - terms * u) if terms * u < 1 else math.inf


@rule("addmm", "baddbmm")
def with_matrix(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """A product of matrices, and what is added to it."""
    addend, first, second = args[:3]
    if set(kwargs) - {"beta", "alpha"} or kwargs.get("beta", 1) != 1 or kwargs.get("alpha", 1) != 1 or len(args) > 3:
        raise NoRule(func.overloadpacket.__name__)
    return torch.matmul(first, second) + addend


@rule("add", "sub")
def added(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """A sum or a difference."""
    first, second, *more = args
    alpha = abs(kwargs.get("alpha", more[0] if more else 1))
    value = func(*values(args), **values(kwargs))
    error = error_of(first) + alpha * error_of(second)
    size = abs(value_of(first)) + alpha * abs(value_of(second))
    return rounded(value, error + 3 * u * (size + error), u)


@rule("mul")
def multiplied(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """A product of numbers."""
    (a, ea), (b, eb) = ((value_of(each), error_of(each)) for each in args[:2])
    value = func(a, b)
    error = abs(a) * eb + abs(b) * ea + ea * eb
    return rounded(value, error + 3 * u * (value.abs() + error), u)


@rule("div")
def divided(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """A quotient of numbers."""
    if kwargs.get("rounding_mode") is not None:
        raise NoRule("div with rounding")
    first, second = args[:2]
    if not is_ball(second):
        value = func(value_of(first), second)
        error = error_of(first) / abs(second)
        return rounded(value, error + 3 * u * (value.abs() + error), u)
    return torch.mul(torch.reciprocal(second), first)


@rule("pow")
def small_power(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """A power of a small whole exponent."""
    base, exponent = args
    if not is_ball(base) or exponent not in (2, 3):
        raise NoRule("pow")
    return base * base if exponent == 2 else base * base * base


@rule("gt", "lt", "ge", "le", "eq", "ne")
def compared(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """A comparison, where no error reaches the other side."""
    first, second = args
    distance = abs(value_of(first) - value_of(second)) - error_of(first) - error_of(second)
    if not bool((distance > 0).all()):
        raise NoRule(f"{func.overloadpacket.__name__} of numbers that rounding may exchange")
    return func(*values(args))


@rule("where")
def chosen(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """One of two numbers at each place, by a mask that is known."""
    if is_ball(args[0]):
        raise NoRule("where")
    value = func(*values(args))
    there = [each.error if is_ball(each) else torch.zeros_like(value) for each in args[1:]]
    return moved(value, torch.where(args[0], *there), u)


@rule("maximum", "minimum")
def greater(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """The larger or the smaller of two numbers."""
    value = func(*values(args))
    first, second = (torch.as_tensor(error_of(each), dtype=value.dtype) for each in args)
    return moved(value, torch.maximum(first, second).expand(value.shape).clone(), u)


@rule("_to_copy")
def cast(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """A cast to float64, which changes nothing."""
    if kwargs.get("dtype", torch.float64) not in (None, torch.float64):
        raise NoRule(f"a cast to {kwargs['dtype']}")
    return Ball(args[0].value.clone(), args[0].error.clone(), u)


@rule("var", "var_mean")
def variance(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """The variance of balls in two passes, and their mean where the operator returns it."""
    named = {**dict(zip((each.name for each in func._schema.arguments), args, strict=False)), **kwargs}
    ball, axes, keep = named["self"], named.get("dim"), named.get("keepdim", False)
    axes = axes or [*range(ball.ndim)]
    correction = named.get("correction", int(named.get("unbiased", True)))
    mean = ball.mean(axes, keepdim=True)
    count = ball.numel() // max(1, mean.numel()) - (1 if correction is None else correction)
    deviation = ball - mean
    result = (deviation * deviation).sum(axes, keepdim=keep) / count
    return (result, ball.mean(axes, keepdim=keep)) if func.overloadpacket.__name__ == "var_mean" else result
