"""Rules of normalisation: means, variances, and an affine map behind them."""

from collections.abc import Sequence
from typing import Any

from conv2attn.equality.fingerprint.formulas import add, inverse_root, mean, mul, sub
from conv2attn.equality.fingerprint.residues import Residues
from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.rules.call import NOTHING, Call, rule


def affine(c: Call, numbers: Residues, weight: Any, bias: Any, shape: Sequence[int]) -> Residues:
    """`numbers weight + bias`, both laid along these axes."""
    numbers = numbers if weight is None else mul(c.field, numbers, c.operand(weight).laid(shape))
    return numbers if bias is None else add(c.field, numbers, c.operand(bias).laid(shape))


def batch_norm(c: Call, image: Any, weight: Any, bias: Any, average: Any, variance: Any, eps: float) -> Residues:
    """By running statistics."""
    shape = [-1] + [1] * (len(c.outs[0].shape) - 2)
    scale = inverse_root(c.field, add(c.field, c.operand(variance), c.operand(eps)))
    middle = c.operand(average)
    if middle.mark is not None:
        raise Undecided("means that are not finite")
    centred = sub(c.field, c.operand(image), middle.laid(shape))
    return affine(c, mul(c.field, centred, scale.laid(shape)), weight, bias, shape)


@rule("native_batch_norm")
def _(
    c: Call,
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    if training and running_mean is None:
        numbers = c.operand(input)
        result = normalised(c, numbers, [0, *range(2, len(numbers.shape))], eps)[0]
        return affine(c, result, weight, bias, [-1] + [1] * (len(numbers.shape) - 2)), None, None
    if training or running_mean is None:
        raise Undecided("batch norm in training, which changes its statistics, or without any")
    return batch_norm(c, input, weight, bias, running_mean, running_var, eps), NOTHING, NOTHING


@rule("_native_batch_norm_legit_no_training")
def _(
    c: Call, input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> tuple[Any, ...]:
    return batch_norm(c, input, weight, bias, running_mean, running_var, eps), NOTHING, NOTHING


def normalised(c: Call, numbers: Residues, axes: list[int], eps: float) -> tuple[Residues, Residues, Residues]:
    """Numbers about their mean over one deviation, the mean, and one over the deviation."""
    middle = mean(c.field, numbers, axes, True)
    centred = sub(c.field, numbers, middle)
    variance = mean(c.field, mul(c.field, centred, centred, True), axes, True)
    scale = inverse_root(c.field, add(c.field, variance, c.operand(eps)))
    return mul(c.field, centred, scale), middle, scale


def last_axes(numbers: Residues, count: int) -> list[int]:
    """The last so many axes."""
    return list(range(len(numbers.shape) - count, len(numbers.shape)))


@rule("native_layer_norm")
def _(
    c: Call, input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float
) -> tuple[Residues, Residues, Residues]:
    numbers = c.operand(input)
    result, middle, scale = normalised(c, numbers, last_axes(numbers, len(normalized_shape)), eps)
    return affine(c, result, weight, bias, normalized_shape), middle, scale


@rule("native_group_norm")
def _(
    c: Call, input: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Residues, Residues, Residues]:
    numbers = c.operand(input)
    c.field.usable(numbers, "a norm")
    result, middle, scale = normalised(c, numbers.laid((N, group, -1)), [2], eps)
    shape = [-1] + [1] * (len(numbers.shape) - 2)
    average, deviation = (each.but(values=each.values[..., 0]) for each in (middle, scale))
    return affine(c, result.laid(numbers.shape), weight, bias, shape), average, deviation


@rule("_fused_rms_norm")
def _(c: Call, input: Any, normalized_shape: Any, weight: Any, eps: Any) -> tuple[Residues, Residues]:
    if eps is None:
        raise Undecided("the argument eps")
    numbers = c.operand(input)
    squares = mean(c.field, mul(c.field, numbers, numbers, True), last_axes(numbers, len(normalized_shape)), True)
    scale = inverse_root(c.field, add(c.field, squares, c.operand(eps)))
    return affine(c, mul(c.field, numbers, scale), weight, None, normalized_shape), scale
