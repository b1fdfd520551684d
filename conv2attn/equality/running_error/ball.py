"""Balls: float64 tensors beside a bound on what rounding to a format may change in each of their numbers.

image = Ball(torch.tensor([1.0, 3.0]).double(), torch.zeros(2).double(), 2.0**-24)
image.sum()          # value 4, error about 3 * 2^-24 * 4
image.relu() > 0.5   # a plain mask, since no error reaches the other side; otherwise NoRule
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conv2attn.torch_internals import decomposition_table, tree_leaves, tree_map_only

aten = torch.ops.aten
SECOND_ORDER = 64
"""An error grows by this many roundoffs, for terms of second order and for the rounding of this bound itself."""
LEAST = {2.0**-24: 2.0**-126, 2.0**-8: 2.0**-126, 2.0**-11: 2.0**-24, 2.0**-53: 2.0**-1022}
"""By the unit roundoff of a format, what a result near 0 may lose: all of it, or in float16 the least subnormal."""
RULES: dict[str, Callable[..., Any]] = {}
"""The rule of each operator by its name: (operator, args, kwargs, unit roundoff) -> result."""


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
    if name in RULES:
        return RULES[name](func, args, kwargs, roundoff)
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


def moved(value: Any, error: Any, roundoff: float) -> Any:
    """Balls of a result that was not rounded, or of a sequence of results; views stay views, which are written to."""
    if isinstance(value, (list, tuple)):
        return type(value)(moved(*each, roundoff) for each in zip(value, error, strict=True))
    return Ball(value, error, roundoff)


def rounded(value: Tensor, error: Tensor, roundoff: float, terms: float = 1.0) -> Ball:
    """The ball of a result whose error is `error` to first order in the roundoff, formed of so many terms."""
    whole = error * (1 + (SECOND_ORDER + terms) * roundoff) + terms * LEAST[roundoff]
    return Ball(value, whole.expand(value.shape).nan_to_num(math.inf, math.inf).clone(), roundoff)
