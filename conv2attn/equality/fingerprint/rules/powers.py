"""Rules of powers, of norms, which are roots of sums of powers, and of products along an axis."""

import math
from functools import partial
from itertools import accumulate
from typing import Any

import torch

from conv2attn.equality.fingerprint.formulas import inverse, mul, oracle, root, sub, total, unordered
from conv2attn.equality.fingerprint.residues import NOT_NEGATIVE, POSITIVE, Residues, knowledge
from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.rules.call import Call, axes_of, rule
from conv2attn.equality.fingerprint.rules.extremes import extreme

LARGEST_POWER = 16
MOST_FACTORS = 1 << 12


def power(c: Call, base: Residues, exponent: float) -> Residues:
    """Numbers to a constant power.

    Raises:
        Undecided: there may be a pole, or the exponent is zero or not finite.
    """
    if not exponent or not math.isfinite(exponent):
        raise Undecided(f"a power of {exponent}")
    if exponent < 0:
        return inverse(c.field, power(c, base, -exponent))
    if exponent == 0.5:
        return root(c.field, base)
    whole, sign = exponent.is_integer(), max(base.sign, int(exponent % 2 == 0))
    if not whole or exponent > LARGEST_POWER:
        finite = whole or base.sign > 0
        return oracle(c.field, f"to the power of {exponent!r}", base, finite=finite, sign=sign if finite else 0)
    result = base
    for _ in range(int(exponent) - 1):
        result = mul(c.field, result, base)
    return result.but(sign=sign) if result.finite else result


@rule("pow")
def _(c: Call, self: Any, exponent: Any) -> Residues:
    if isinstance(self, torch.Tensor) and isinstance(exponent, int | float):
        return power(c, c.operand(self), c.constant(exponent).item())
    if isinstance(self, int | float) and 0 < c.constant(self).item() < math.inf:
        name = f"{c.constant(self).item()!r} to the power of"
        return oracle(c.field, name, c.operand(exponent), finite=True, sign=POSITIVE)
    raise Undecided("a power with a pole")


def magnitude(c: Call, numbers: Residues) -> Residues:
    """Numbers without their signs."""
    return numbers if numbers.sign else oracle(c.field, "abs", numbers, finite=True, sign=NOT_NEGATIVE)


@rule("abs")
def _(c: Call, self: Any) -> Residues:
    return magnitude(c, c.operand(self))


def norm(c: Call, numbers: Residues, order: float, axes: list[int], keepdim: bool) -> Residues:
    """The root of a sum of powers along some axes, and its limits.

    Raises:
        Undecided: numbers are not finite, or there is no such order.
    """
    sizes = numbers if order > 0 and order % 2 == 0 else magnitude(c, numbers)
    if math.isinf(order):
        return extreme(c, "max" if order > 0 else "min", sizes, axes, keepdim)
    c.field.usable(numbers, "a norm")
    if order > 0 or (order < 0 and sizes.sign == POSITIVE):
        # torch keeps the exponents of a norm in float64
        return power(c, total(c.field, power(c, sizes, order), axes, keepdim), 1 / order)
    if math.isnan(order):
        raise Undecided("the argument ord = nan")
    return unordered(c.field, f"norm of order {order!r}", sizes, axes, keepdim).but(sign=NOT_NEGATIVE)


@rule("linalg_vector_norm")
def _(c: Call, self: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Residues:
    numbers = c.operand(self)
    return norm(c, numbers, float(ord), axes_of(numbers, dim), keepdim)


@rule("_cdist_forward")
def _(c: Call, x1: Any, x2: Any, p: float, compute_mode: Any) -> Residues:
    first, second = c.operand(x1), c.operand(x2)
    axes = max(len(first.shape), len(second.shape))
    apart = sub(c.field, with_axis(first.with_axes(axes), -2), with_axis(second.with_axes(axes), -3))
    return norm(c, apart, float(p), [axes], False)


def with_axis(numbers: Residues, axis: int) -> Residues:
    """The numbers with an axis of one number."""
    return numbers.but(values=numbers.values.unsqueeze(axis))


def running_products(c: Call, numbers: Residues, axis: int) -> list[Residues]:
    """The products of the first number along an axis, of the first two, and so on; the axis stays.

    Raises:
        Undecided: numbers are not finite, or there are none or too many.
    """
    c.field.usable(numbers, "a product")
    along = axis % len(numbers.shape) - len(numbers.shape)
    if not 0 < numbers.shape[along] <= MOST_FACTORS:
        raise Undecided(f"a product of {numbers.shape[along]} numbers")
    factors = [numbers.but(values=each) for each in numbers.values.split(1, along)]
    return list(accumulate(factors, partial(mul, c.field)))


@rule("cumprod")
def _(c: Call, self: Any, dim: int, dtype: Any = None) -> Residues:
    numbers = c.operand(self)
    if not numbers.shape:
        return numbers
    products = running_products(c, numbers, dim)
    along = dim % len(numbers.shape) - len(numbers.shape)
    return Residues(torch.cat([each.values for each in products], along), None, **knowledge(*products))


@rule("prod")
def _(c: Call, self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Residues:
    numbers = c.operand(self)
    if not numbers.shape:
        return numbers
    numbers, axis = (numbers.laid((-1,)), 0) if dim is None else (numbers, dim % len(numbers.shape))
    product = running_products(c, numbers, axis)[-1]
    return product if keepdim else product.but(values=product.values.squeeze(axis + 1))
