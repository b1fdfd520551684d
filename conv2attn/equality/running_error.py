"""A running error bound: a float64 tensor beside what rounding to a format may change in each of its numbers.

A `Ball` is a tensor and a bound on how far the real number is from it, however the operators so far were rounded to the
format: weights, constants, each sum and each product. Operators act by rules; one without a rule and without a
decomposition into such raises `NoRule`.
Source: Higham, Accuracy and Stability of Numerical Algorithms, Sec. 3.3.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from conv2attn.torch_internals import decomposition_table, tree_leaves, tree_map_only

aten = torch.ops.aten
MOVES = {
    "view", "_unsafe_view", "reshape", "permute", "transpose", "t", "expand", "slice", "select", "unsqueeze",
    "squeeze", "cat", "stack", "split", "unbind", "alias", "split_with_sizes", "clone", "detach", "reflection_pad1d",
    "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "flip", "roll", "replication_pad2d",
    "replication_pad3d", "constant_pad_nd", "as_strided", "repeat", "index", "gather", "im2col", "unfold",
    "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "upsample_nearest1d", "upsample_nearest2d",
    "upsample_nearest3d", "diagonal", "view_as", "contiguous", "lift_fresh", "expand_as", "movedim", "swapaxes",
    "index_select", "narrow",
}  # fmt: skip
LIPSCHITZ = {
    "relu": 1.0, "relu6": 1.0, "abs": 1.0, "neg": 1.0, "hardtanh": 1.0, "sigmoid": 0.25, "tanh": 1.0, "gelu": 1.13,
    "silu": 1.1, "erf": 1.13, "sin": 1.0, "cos": 1.0, "softplus": 1.0, "mish": 1.1, "hardswish": 1.5, "atan": 1.0,
    "hardsigmoid": 0.17, "max_pool1d": 1.0, "clamp": 1.0, "clamp_min": 1.0, "clamp_max": 1.0, "softsign": 1.0,
}  # fmt: skip
"""Constants L with |f(x) - f(y)| <= L |x - y|, of functions that are computed within 8 roundoffs of their value."""
WINDOWS = {"max_pool1d", "max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d", "amax", "max"}
AVERAGES = {"sum", "mean", "avg_pool1d", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d"}
MONOTONE = {"exp", "sqrt", "rsqrt", "log", "reciprocal", "expm1", "log1p"}
PRODUCTS = {"convolution", "mm", "bmm", "dot", "mv"}
ULPS = 8.0


class NoRule(Exception):
    """An operator without a rule."""


class Ball(Tensor):
    """A float64 tensor, and a bound on its distance from real numbers."""

    value: Tensor
    error: Tensor
    roundoff: float

    @staticmethod
    def __new__(cls, value: Tensor, error: Tensor, roundoff: float) -> "Ball":
        ball: Any = Tensor._make_wrapper_subclass(
            cls, value.shape, strides=value.stride(), storage_offset=value.storage_offset(), dtype=value.dtype,
            device=value.device,
        )  # fmt: skip
        ball.value, ball.error, ball.roundoff = value, error, roundoff
        return ball

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"Ball{tuple(self.shape)}"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Applies the rule of `func`."""
        roundoff = next(each.roundoff for each in tree_leaves((args, kwargs)) if is_ball(each))
        return evaluate(func, args, kwargs or {}, roundoff)


def is_ball(thing: object) -> bool:
    """Whether something is a Ball."""
    return isinstance(thing, Ball)


def evaluate(func: Any, args: Any, kwargs: Any, roundoff: float) -> Any:
    """The result of an operator on balls.

    Raises:
        NoRule: it has no rule.
    """
    name = func.overloadpacket.__name__
    if name == "copy_":
        return assign(args[0], args[1])
    if name.endswith("_") and not name.endswith("__"):
        return assign(args[0], evaluate(functional(func), args, kwargs, roundoff))
    rule = rule_for(name)
    if rule is not None:
        return rule(func, args, kwargs, roundoff)
    if func in decomposition_table:
        return decomposition_table[func](*args, **kwargs)
    result = func.decompose(*args, **kwargs)
    if result is NotImplemented:
        raise NoRule(str(func).removeprefix("aten."))
    return result


def functional(func: Any) -> Any:
    """The operator that computes what one in place writes.

    Raises:
        NoRule: there is none.
    """
    packet = getattr(aten, func.overloadpacket.__name__[:-1], None)
    if packet is None or func._overloadname not in packet.overloads():
        raise NoRule(str(func).removeprefix("aten."))
    return getattr(packet, func._overloadname)


def assign(target: Any, source: Any) -> Any:
    """Writes a result into a tensor in place; views of it see it."""
    if not is_ball(target):
        raise NoRule("a result written into a constant")
    ball = source if is_ball(source) else None
    target.value.copy_(source if ball is None else ball.value)
    target.error.copy_(torch.zeros_like(target.error) if ball is None else ball.error)
    return target


def rule_for(name: str) -> Callable[..., Any] | None:
    """The rule of an operator by its name."""
    for names, rule in (
        (MOVES, move),
        (WINDOWS, window),
        (AVERAGES, average),
        (MONOTONE, monotone),
        (PRODUCTS, product),
    ):
        if name in names:
            return rule
    return lipschitz if name in LIPSCHITZ else RULES.get(name)


def values(thing: Any) -> Any:
    """Arguments with the values of their balls."""
    return tree_map_only(Ball, lambda ball: ball.value, thing)


def errors(thing: Any) -> Any:
    """Arguments with the errors of their balls, and zeros in place of other tensors of numbers."""
    return tree_map_only(
        Tensor,
        lambda each: each.error if is_ball(each) else torch.zeros_like(each) if each.is_floating_point() else each,
        thing,
    )


def sizes(thing: Any) -> Any:
    """Arguments with the magnitudes of all tensors."""
    return tree_map_only(Tensor, lambda each: each.value.abs() + each.error if is_ball(each) else each.abs(), thing)


def error_of(thing: Any) -> Any:
    """The error of a ball; 0 of anything else."""
    return thing.error if is_ball(thing) else 0.0


def value_of(thing: Any) -> Any:
    """The value of a ball; anything else as it is."""
    return thing.value if is_ball(thing) else thing


def wrapped(value: Any, error: Any, roundoff: float) -> Any:
    """Balls of a result, or of a sequence of results."""
    if isinstance(value, (list, tuple)):
        return type(value)(wrapped(*each, roundoff) for each in zip(value, error, strict=True))
    return Ball(value, error.nan_to_num(math.inf, math.inf), roundoff)


def move(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """Numbers change their places, and their errors with them."""
    value = func(*values(args), **values(kwargs))
    if func.overloadpacket.__name__ == "constant_pad_nd":
        return wrapped(value, func(*errors(args[:2]), 0.0), u)
    return wrapped(value, func(*errors(args), **errors(kwargs)), u)


def lipschitz(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """A function that moves no two numbers further apart than by its constant."""
    value = func(*values(args), **values(kwargs))
    constant = LIPSCHITZ[func.overloadpacket.__name__]
    return wrapped(value, constant * args[0].error + ULPS * u * value.abs(), u)


def window(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """The largest number of a window is off by at most the largest error in it."""
    value = func(*values(args), **values(kwargs))
    error = func(*errors(args), **errors(kwargs))
    if isinstance(value, tuple):
        return (wrapped(value[0], error[0], u), *value[1:])
    return wrapped(value, error, u)


def average(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """Sums and means: errors add up, and each number is rounded once a term."""
    value = func(*values(args), **values(kwargs))
    error = func(*errors(args), **errors(kwargs)).abs()
    terms = 2 + args[0].numel() // max(1, value.numel())
    return wrapped(value, error + growth(terms, u) * func(*sizes(args), **sizes(kwargs)).abs(), u)


def monotone(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """A monotone function: the ends of the interval bound the error."""
    (ball,) = args
    value = func(ball.value)
    ends = (func(ball.value + sign * ball.error) for sign in (1, -1))
    error = torch.stack([(end - value).abs().nan_to_num(math.inf, math.inf) for end in ends]).amax(0)
    return wrapped(value, error + ULPS * u * value.abs(), u)


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
    result = wrapped(value, error, u)
    if addend is None:
        return result
    return result + addend.reshape(-1, *[1] * (value.ndim - 2))


def growth(terms: int, u: float) -> float:
    """gamma_n = n u / (1 - n u), infinite where it says nothing."""
    return terms * u / (1 - terms * u) if terms * u < 1 else math.inf


def added(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """A sum or a difference."""
    first, second, *more = args
    alpha = kwargs.get("alpha", more[0] if more else 1)
    value = func(*values(args), **values(kwargs))
    error = error_of(first) + abs(alpha) * error_of(second)
    size = abs(value_of(first)) + abs(alpha) * abs(value_of(second))
    return wrapped(value, (error + 3 * u * size).expand(value.shape).clone(), u)


def multiplied(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """A product of numbers."""
    (a, ea), (b, eb) = ((value_of(each), error_of(each)) for each in args[:2])
    value = func(a, b)
    error = abs(a) * eb + abs(b) * ea + ea * eb
    return wrapped(value, error + 3 * u * value.abs(), u)


def divided(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """A quotient of numbers."""
    if kwargs.get("rounding_mode") is not None:
        raise NoRule("div with rounding")
    first, second = args[:2]
    if not is_ball(second):
        value = func(value_of(first), second)
        return wrapped(value, error_of(first) / abs(second) + 3 * u * value.abs(), u)
    return torch.mul(torch.reciprocal(second), first)


def squared(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """A power of a small whole exponent."""
    base, exponent = args
    if not is_ball(base) or exponent not in (2, 3):
        raise NoRule("pow")
    return base * base if exponent == 2 else base * base * base


def compared(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """A comparison, where no error reaches the other side."""
    first, second = args
    distance = abs(value_of(first) - value_of(second)) - error_of(first) - error_of(second)
    if not bool((distance > 0).all()):
        raise NoRule(f"{func.overloadpacket.__name__} of numbers that rounding may exchange")
    return func(*values(args))


def chosen(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """One of two numbers at each place, by a mask that is known."""
    if is_ball(args[0]):
        raise NoRule("where")
    value = func(*values(args))
    errors_there = [each.error if is_ball(each) else torch.zeros_like(value) for each in args[1:]]
    return wrapped(value, torch.where(args[0], *errors_there), u)


def greater(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """The larger or the smaller of two numbers."""
    value = func(*values(args))
    first, second = (torch.as_tensor(error_of(each), dtype=value.dtype) for each in args)
    return wrapped(value, torch.maximum(first, second).expand(value.shape).clone(), u)


def leaking(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """leaky_relu and elu, whose slopes are at most 1 or their first argument."""
    value = func(*values(args))
    slope = max([1.0, *(abs(each) for each in args[1:2])])
    return wrapped(value, slope * args[0].error + ULPS * u * value.abs(), u)


def with_matrix(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """A product of matrices, and what is added to it."""
    addend, first, second = args[:3]
    if set(kwargs) - {"beta", "alpha"} or kwargs.get("beta", 1) != 1 or kwargs.get("alpha", 1) != 1 or len(args) > 3:
        raise NoRule(func.overloadpacket.__name__)
    return torch.matmul(first, second) + addend


def cast(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """A cast to float64, which changes nothing."""
    if kwargs.get("dtype", torch.float64) not in (None, torch.float64):
        raise NoRule(f"a cast to {kwargs['dtype']}")
    return Ball(args[0].value.clone(), args[0].error.clone(), u)


def variance(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """The variance of balls, and their mean where the operator returns it."""
    named = {**dict(zip((each.name for each in func._schema.arguments), args, strict=False)), **kwargs}
    ball, axes, keep = named["self"], named.get("dim"), named.get("keepdim", False)
    axes = axes or [*range(ball.ndim)]
    correction = named.get("correction", int(named.get("unbiased", True)))
    mean = ball.mean(axes, keepdim=True)
    count = ball.numel() // max(1, mean.numel()) - (1 if correction is None else correction)
    deviation = ball - mean
    result = (deviation * deviation).sum(axes, keepdim=keep) / count
    return (result, ball.mean(axes, keepdim=keep)) if func.overloadpacket.__name__ == "var_mean" else result


def filled(func: Any, args: Any, kwargs: Any, u: float) -> Any:
    """Constants in the shape of a tensor."""
    return func(*values(args), **values(kwargs))


RULES: dict[str, Callable[..., Any]] = {
    "add": added, "sub": added, "mul": multiplied, "div": divided, "pow": squared, "where": chosen, "_to_copy": cast,
    "maximum": greater, "minimum": greater, "leaky_relu": leaking, "elu": leaking, "addmm": with_matrix,
    "baddbmm": with_matrix, "var": variance, "var_mean": variance,
    **dict.fromkeys(("gt", "lt", "ge", "le", "eq", "ne"), compared),
    **dict.fromkeys(
        ("zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty"), filled
    ),
}  # fmt: skip


def running(network: Callable[..., Any], image: Tensor, roundoff: float, arguments: Sequence[Any] = ()) -> Any:
    """The result of a function on an image, as balls.

    Raises:
        NoRule: an operator has no rule, or code reads numbers.
    """
    with torch.no_grad():
        return network(Ball(image.clone(), torch.zeros_like(image), roundoff), *arguments)
