"""Rules of pointwise operators: arithmetic exactly, functions as oracles with what is known of their range."""

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

HALF_ROOT = 0.70710678118654752440
GELU_SLOPE = math.sqrt(2 / math.pi)


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
    """`1 / (1 + exp(-x))`."""
    return oracle(field, "sigmoid", x, finite=True, sign=POSITIVE)


def bounded(name: str) -> Callable[[Field, Residues], Residues]:
    """A function of this name that is finite everywhere."""
    return lambda field, x: oracle(field, name, x, finite=True)


erf, tanh = map(bounded, ("erf", "tanh"))


def mish(field: Field, x: Residues) -> Residues:
    """`x tanh(log(1 + exp(x)))`."""
    powers = oracle(field, "exp", x, finite=True, sign=POSITIVE)
    return mul(field, x, tanh(field, bounded("log1p")(field, powers)))


OF_ONE_NUMBER: dict[str, Callable[[Field, Residues], Residues]] = {
    "erf": erf,
    "exp": exponential,
    "log": lambda field, x: logarithm(field, x, finite=x.sign == POSITIVE),
    "log1p": lambda field, x: oracle(field, "log1p", x, finite=x.sign >= NOT_NEGATIVE),
    "mish": mish,
    "neg": neg,
    "reciprocal": inverse,
    "rsqrt": inverse_root,
    "sigmoid": sigmoid,
    "silu": lambda field, x: mul(field, x, sigmoid(field, x)),
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


@rule("rsub")
def _(c: Call, self: Any, other: Any, alpha: Any = 1) -> Residues:
    return sub(c.field, c.operand(other), scaled(c, self, alpha))


@rule("mul")
def _(c: Call, self: Any, other: Any) -> Residues:
    return mul(c.field, c.operand(self), c.operand(other), same_view(self, other))


@rule("div")
def _(c: Call, self: Any, other: Any) -> Residues:
    return c.quotient(c.operand(self), other)


@rule("addcmul")
def _(c: Call, self: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Residues:
    product = mul(c.field, c.operand(tensor1), c.operand(tensor2))
    return add(c.field, c.operand(self), mul(c.field, c.operand(value), product))


@rule("addcdiv")
def _(c: Call, self: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Residues:
    quotient = c.quotient(c.operand(tensor1), tensor2)
    return add(c.field, c.operand(self), mul(c.field, c.operand(value), quotient))


@rule("lerp")
def _(c: Call, self: Any, end: Any, weight: Any) -> Residues:
    start, stop, share = c.operand(self), c.operand(end), c.operand(weight)
    for each in (start, stop, share):
        c.field.usable(each, "lerp")  # torch goes from either end
    return add(c.field, start, mul(c.field, share, sub(c.field, stop, start)))


@rule("softplus")
def _(c: Call, self: Any, beta: Any = 1, threshold: Any = 20) -> Residues:
    beta, threshold = c.constant(beta).item(), c.constant(threshold).item()
    if not 0 < beta < math.inf or not 0 <= threshold < math.inf:
        raise Undecided(f"the argument beta = {beta} or threshold = {threshold}")
    name = f"softplus {float(beta)!r} {float(threshold)!r}"
    return oracle(c.field, name, c.operand(self), finite=True, sign=NOT_NEGATIVE)


@rule("glu")
def _(c: Call, self: Any, dim: int = -1) -> Residues:
    numbers = c.operand(self)
    c.field.usable(numbers, "a gate")
    along = dim % len(numbers.shape) - len(numbers.shape)
    first, second = (numbers.but(values=each) for each in numbers.values.chunk(2, along))
    return mul(c.field, first, sigmoid(c.field, second))


@rule("log_sigmoid_forward")
def _(c: Call, self: Any) -> tuple[Residues, None]:
    return bounded("log")(c.field, sigmoid(c.field, c.operand(self))), None


@rule("gelu")
def _(c: Call, self: Any, approximate: str = "none") -> Residues:
    operand = c.operand(self)
    if approximate == "none":
        share = erf(c.field, mul(c.field, operand, c.operand(HALF_ROOT)))
    else:
        cubed = mul(c.field, mul(c.field, operand, operand), operand)
        inner = add(c.field, operand, mul(c.field, cubed, c.operand(0.044715)))
        share = tanh(c.field, mul(c.field, inner, c.operand(GELU_SLOPE)))
    return mul(c.field, times(c.field, operand, 1, 2), add(c.field, c.operand(1), share))


def at_least(c: Call, numbers: Residues, bound: Any) -> Residues:
    """The larger of numbers and a bound."""
    low, real = c.operand(bound), c.constant(bound)
    if real is not None and not bool(real.any()) and numbers.sign:
        return numbers
    sign = ANY_SIGN if real is None else low.sign
    larger = oracle(c.field, "at least", numbers, low, finite=True, sign=max(numbers.sign, sign))
    return c.field.origins.note(larger, "at least", numbers, low) if low.values[0].numel() == 1 else larger


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


@rule("hardtanh")
def _(c: Call, self: Any, min_val: Any = -1, max_val: Any = 1) -> Residues:
    return at_most(c, at_least(c, c.operand(self), min_val), c.operand(max_val))


@rule("_prelu_kernel")
def _(c: Call, self: Any, weight: Any) -> Residues:
    numbers = c.operand(self)
    below = mul(c.field, c.operand(weight), at_most(c, numbers, c.operand(0)))
    return add(c.field, at_least(c, numbers, 0), below)


@rule("relu", "hardsigmoid", "hardswish")
def _(c: Call, self: Any) -> Residues:
    x = c.operand(self)
    if c.base == "relu":
        return at_least(c, x, 0)
    gate = times(c.field, at_most(c, at_least(c, add(c.field, x, c.operand(3)), 0), c.operand(6)), 1, 6)
    return gate if c.base == "hardsigmoid" else mul(c.field, x, gate)


@rule("maximum", "minimum")
def _(c: Call, self: Any, other: Any) -> Residues:
    largest = c.base == "maximum"
    first, second = (self, other) if c.numbers.depends(self) else (other, self)
    if not c.numbers.depends(second):
        return at_least(c, c.operand(first), second) if largest else at_most(c, c.operand(first), c.operand(second))
    a, b = c.operand(first), c.operand(second)
    sign = max(a.sign, b.sign) if largest else min(a.sign, b.sign)
    return symmetric_oracle(c.field, c.base[:3], a, b).but(sign=sign)
