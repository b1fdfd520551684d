"""Rules of powers, and of norms, which are roots of sums of powers."""

import math
from typing import Any

import torch

from conv2attn.equality.fingerprint.formulas import inverse, mul, oracle, root, total
from conv2attn.equality.fingerprint.residues import NOT_NEGATIVE, POSITIVE, Residues
from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.rules.call import Call, axes_of, rule
from conv2attn.equality.fingerprint.rules.reductions import extreme

LARGEST_POWER = 16


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
    # Expanded, so that x ** 2 and x * x are one polynomial; higher powers would need too many primes.
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


@rule("linalg_vector_norm")
def _(c: Call, self: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Residues:
    numbers, order = c.operand(self), float(ord)
    axes = axes_of(numbers, dim)
    sizes = numbers if order > 0 and order % 2 == 0 else magnitude(c, numbers)
    if math.isinf(order):
        return extreme(c, "max" if order > 0 else "min", sizes, axes, keepdim)
    c.field.usable(numbers, "a norm")
    if not order > 0:
        raise Undecided(f"the argument ord = {order}")
    # torch keeps the exponents of a norm in float64
    return power(c, total(c.field, power(c, sizes, order), axes, keepdim), 1 / order)
