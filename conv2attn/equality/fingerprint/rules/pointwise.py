"""Rules of pointwise operators: exact arithmetic, and functions as oracles with known facts about their range."""

import math
from collections.abc import Callable
from typing import Any

import torch

from conv2attn.equality.fingerprint.field import Field
from conv2attn.equality.fingerprint.formulas import (
    add,
    exponential,
    inverse,
    inverse_root,
    logarithm,
    mul,
    neg,
    oracle,
    root,
    sub,
    symmetric_oracle,
    times,
)
from conv2attn.equality.fingerprint.residues import ANY_SIGN, NOT_NEGATIVE, POSITIVE, Residues
from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.rules.call import RULES, Call, Rule, rule, same_view


@rule("_to_copy")
def _(
    c: Call,
    self: Any,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    non_blocking: Any = False,
    memory_format: Any = None,
) -> Residues:
    if pin_memory or (device and torch.device(device).type != "cpu"):
        raise Undecided("moves to another device")
    return c.operand(self)


def sigmoid(field: Field, x: Residues) -> Residues:
    """`1 / (1 + exp(-x))`, so that a sigmoid written by hand is the same formula."""
    if not x.finite or x.mark is not None:
        return oracle(field, "sigmoid", x, finite=True, sign=POSITIVE)
    return inverse(field, add(field, exponential(field, neg(field, x)), field.rational(1, 1)))


def tanh(field: Field, x: Residues) -> Residues:
    """`2 sigmoid(2 x) - 1`."""
    if not x.finite or x.mark is not None:
        return oracle(field, "tanh", x, finite=True)
    return add(field, times(field, sigmoid(field, times(field, x, 2)), 2), field.rational(-1, 1))


def bounded(name: str) -> Callable[[Field, Residues], Residues]:
    """The rule of a function that is finite at every operand passed to it, as an oracle of this name."""
    return lambda field, x: oracle(field, name, x, finite=True)


def mish(field: Field, x: Residues) -> Residues:
    """`x tanh(log(1 + exp(x)))`; torch's decomposition uses a softplus, which is x itself above 20."""
    return mul(field, x, tanh(field, bounded("log1p")(field, exponential(field, x))))


OF_ONE_NUMBER: dict[str, Callable[[Field, Residues], Residues]] = {
    "erf": bounded("erf"),
    "exp": exponential,
    "log": lambda field, x: logarithm(field, x, finite=x.sign == POSITIVE),
    "log1p": lambda field, x: oracle(field, "log1p", x, finite=x.sign >= NOT_NEGATIVE),
    "mish": mish,
    "neg": neg,
    "reciprocal": inverse,
    "rsqrt": inverse_root,
    "sigmoid": sigmoid,
    "sqrt": root,
    "square": lambda field, x: mul(field, x, x, True),
    "tanh": tanh,
}


def of_one_number(function: Callable[[Field, Residues], Residues]) -> Rule:
    """The rule of an operator of one tensor."""

    def apply(c: Call, self: Any) -> Residues:
        return function(c.field, c.operand(self))

    return apply


RULES.update({name: of_one_number(function) for name, function in OF_ONE_NUMBER.items()})


def scaled(c: Call, value: Any, alpha: Any) -> Residues:
    """An operand times a number."""
    return c.operand(value) if alpha == 1 else mul(c.field, c.operand(value), c.operand(alpha))


@rule("add")
def _(c: Call, self: Any, other: Any, alpha: Any = 1) -> Residues:
    if alpha == 1:
        return add(c.field, c.summand(self), c.summand(other))
    return add(c.field, c.operand(self), scaled(c, other, alpha))


@rule("sub")
def _(c: Call, self: Any, other: Any, alpha: Any = 1) -> Residues:
    return sub(c.field, c.operand(self), scaled(c, other, alpha))


@rule("mul")
def _(c: Call, self: Any, other: Any) -> Residues:
    return mul(c.field, c.operand(self), c.operand(other), same_view(self, other))


@rule("div")
def _(c: Call, self: Any, other: Any) -> Residues:
    return c.quotient(c.operand(self), other)


@rule("nan_to_num")
def _(c: Call, self: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Residues:
    numbers = c.operand(self)
    c.field.usable(numbers, "nan_to_num")  # of finite numbers it changes none
    return numbers


@rule("log_sigmoid_forward")
def _(c: Call, self: Any) -> tuple[Residues, None]:
    return bounded("log")(c.field, sigmoid(c.field, c.operand(self))), None


def at_least(c: Call, numbers: Residues, bound: Any) -> Residues:
    """The larger of numbers and a bound."""
    low, real = c.operand(bound), c.constant(bound)
    if real is not None and not bool(real.any()) and numbers.sign:
        return numbers
    sign = ANY_SIGN if real is None else low.sign
    larger = oracle(c.field, "at least", numbers, low, finite=True, sign=max(numbers.sign, sign))
    return c.field.origins.note(larger, "at least", numbers, low) if math.prod(low.shape) == 1 else larger


def at_most(c: Call, numbers: Residues, high: Residues) -> Residues:
    """The smaller of numbers and a bound."""
    return oracle(c.field, "at most", numbers, high, finite=True, sign=min(numbers.sign, high.sign))


@rule("clamp_min")
def _(c: Call, self: Any, min: Any) -> Residues:
    return at_least(c, c.operand(self), min)


@rule("clamp_max")
def _(c: Call, self: Any, max: Any) -> Residues:
    return at_most(c, c.operand(self), c.operand(max))


@rule("clamp")
def _(c: Call, self: Any, min: Any = None, max: Any = None) -> Residues:
    numbers = c.operand(self)
    numbers = numbers if min is None else at_least(c, numbers, min)
    return numbers if max is None else at_most(c, numbers, c.operand(max))


@rule("_prelu_kernel")
def _(c: Call, self: Any, weight: Any) -> Residues:
    numbers = c.operand(self)
    below = mul(c.field, c.operand(weight), at_most(c, numbers, c.operand(0)))
    return add(c.field, at_least(c, numbers, 0), below)


@rule("relu")
def _(c: Call, self: Any) -> Residues:
    return at_least(c, c.operand(self), 0)


@rule("maximum", "minimum")
def _(c: Call, self: Any, other: Any) -> Residues:
    largest = c.base == "maximum"
    first, second = (self, other) if c.numbers.depends(self) else (other, self)
    if not c.numbers.depends(second):
        return at_least(c, c.operand(first), second) if largest else at_most(c, c.operand(first), c.operand(second))
    a, b = c.operand(first), c.operand(second)
    sign = max(a.sign, b.sign) if largest else min(a.sign, b.sign)
    return symmetric_oracle(c.field, c.base[:3], a, b).but(sign=sign)
