"""Rules over axes: sums, means, deviations, order-independent extremes, and batch normalisation."""

import math
from typing import Any

from conv2attn.equality.fingerprint.formulas import (
    add,
    inverse_root,
    mean,
    mul,
    root,
    sub,
    times,
    total,
    unordered,
)
from conv2attn.equality.fingerprint.residues import Residues
from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.rules.call import NOTHING, Call, axes_of, rule


@rule("sum", "nansum", "mean")
def _(c: Call, self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Residues:
    numbers = c.operand(self)
    return (mean if c.base == "mean" else total)(c.field, numbers, axes_of(numbers, dim), keepdim)


def mean_and_variance(
    c: Call, numbers: Residues, dim: Any, correction: Any, keepdim: bool
) -> tuple[Residues, Residues]:
    """The mean, and the sum of squares about it divided by the count minus the correction."""
    axes = axes_of(numbers, dim)
    count = math.prod(numbers.shape[axis] for axis in axes)
    less = 1 if correction is None else correction
    if not float(less).is_integer() or count - less <= 0:
        raise Undecided(f"the argument correction = {correction}")
    # The sum of squares about the mean, not E x^2 - (E x)^2. Both are one polynomial, but only this form is known to be
    # non-negative, which the root and the division after it require.
    middle = mean(c.field, numbers, axes, True)
    apart = sub(c.field, numbers, middle)
    squares = total(c.field, mul(c.field, apart, apart, True), axes, keepdim)
    middle = middle if keepdim else middle.laid(squares.shape)
    return middle, times(c.field, squares, 1, count - int(less))


@rule("var", "std", "var_mean")
def _(c: Call, self: Any, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Any:
    middle, spread = mean_and_variance(c, c.operand(self), dim, correction, keepdim)
    return {"var": spread, "std": root(c.field, spread), "var_mean": (spread, middle)}[c.base]


def extreme(c: Call, name: str, numbers: Residues, axes: list[int], keep: bool) -> Residues:
    """The largest or smallest number along some axes; `name` is "max" or "min"."""
    return unordered(c.field, name, numbers, axes, keep) if axes else numbers


@rule("amax", "amin", "max", "min")
def _(c: Call, self: Any, dim: Any = None, keepdim: bool = False) -> Residues:
    numbers = c.operand(self)
    axes = axes_of(numbers, dim) if numbers.shape else []
    return extreme(c, c.base.removeprefix("a"), numbers, axes, keepdim)


# Other norms use torch's own decompositions; see `families`. That of batch norm would round 1 / deviation if the
# statistics are constants.


@rule("native_batch_norm", "_native_batch_norm_legit_no_training")
def _(
    c: Call,
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    momentum: float,
    eps: float,
    training: bool = False,
) -> tuple[Any, ...]:
    if training is not (running_mean is None):
        raise Undecided("batch norm in training, which changes its statistics, or without any")
    numbers = c.operand(input)
    shape = [numbers.shape[1]] + [1] * (len(numbers.shape) - 2)
    if training:  # statistics of the batch, as in instance norm
        middle, spread = mean_and_variance(c, numbers, [0, *range(2, len(numbers.shape))], 0, True)
    else:
        middle, spread = (c.operand(each).laid(shape) for each in (running_mean, running_var))
        c.field.usable(middle, "means")
    scale = inverse_root(c.field, add(c.field, spread, c.operand(eps)))
    numbers = mul(c.field, sub(c.field, numbers, middle), scale)
    numbers = numbers if weight is None else mul(c.field, numbers, c.operand(weight).laid(shape))
    numbers = numbers if bias is None else add(c.field, numbers, c.operand(bias).laid(shape))
    return (numbers, None, None) if training else (numbers, NOTHING, NOTHING)
