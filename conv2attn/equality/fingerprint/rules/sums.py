"""Rules of sums, means and deviations over axes."""

import math
from typing import Any

from conv2attn.equality.fingerprint.formulas import mean, mul, root, sub, times, total
from conv2attn.equality.fingerprint.residues import Residues
from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.rules.call import Call, axes_of, rule


@rule("sum", "nansum")
def _(c: Call, self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Residues:
    numbers = c.operand(self)
    return total(c.field, numbers, axes_of(numbers, dim), keepdim)


@rule("mean")
def _(c: Call, self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Residues:
    numbers = c.operand(self)
    return mean(c.field, numbers, axes_of(numbers, dim), keepdim)


def mean_and_variance(
    c: Call, numbers: Residues, dim: Any, correction: Any, keepdim: bool
) -> tuple[Residues, Residues]:
    """The mean, and the sum of squares about it over the count less the correction."""
    axes = axes_of(numbers, dim)
    count = math.prod(numbers.shape[axis] for axis in axes)
    less = 1 if correction is None else correction
    if not float(less).is_integer() or count - less <= 0:
        raise Undecided(f"the argument correction = {correction}")
    middle = mean(c.field, numbers, axes, True)
    apart = sub(c.field, numbers, middle)
    squares = total(c.field, mul(c.field, apart, apart, True), axes, keepdim)
    middle = middle if keepdim else middle.laid(squares.shape)
    return middle, times(c.field, squares, 1, count - int(less))


@rule("var", "std", "var_mean")
def _(c: Call, self: Any, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Any:
    middle, spread = mean_and_variance(c, c.operand(self), dim, correction, keepdim)
    return {"var": spread, "std": root(c.field, spread), "var_mean": (spread, middle)}[c.base]


@rule("cumsum")
def _(c: Call, self: Any, dim: int, dtype: Any = None) -> Residues:
    numbers = c.operand(self)
    c.field.usable(numbers, "a sum")
    if not numbers.shape:
        return numbers
    axis = dim % len(numbers.shape) - len(numbers.shape)
    sums = numbers.values.cumsum(axis)
    values = c.field.reduced(sums)
    return numbers.but(values=values, size_bits=numbers.size_bits + math.log2(max(1, numbers.shape[axis])))
