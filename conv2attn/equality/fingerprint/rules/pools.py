"""Rules of pooling: sums and maxima over windows.

An example: an average over the windows of two of (a, b, c) is the sums (a + b, b + c), each times the inverse of 2
modulo each prime. A maximum is an oracle of the sum of hashes, which does not depend on their order; see `formulas`.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.fingerprint.formulas import keyed_hashes, mul, oracle, times
from conv2attn.equality.fingerprint.residues import POSITIVE, Residues
from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.rules.call import Call, rule

Sides = Sequence[int]


def windows(numbers: Tensor, kernel: Sides, stride: Sides, padding: Sides, dilation: Sides, size: Sides) -> Tensor:
    """The sum over each window of an int64 tensor (k, ..., *sides), padded with zeros."""
    shape = zip(size, stride, dilation, kernel, strict=True)
    need = [(o - 1) * s + d * (k - 1) + 1 for o, s, d, k in shape]
    last = zip(padding, need, numbers.shape[-len(need) :], strict=True)
    amounts = [(before, max(0, wanted - side - before)) for before, wanted, side in last]
    numbers = torch.nn.functional.pad(numbers, [each for pair in reversed(amounts) for each in pair])
    result = torch.zeros((), dtype=numbers.dtype)
    for tap in product(*map(range, kernel)):
        firsts = [place * apart for place, apart in zip(tap, dilation, strict=True)]
        ends = [f + s * (o - 1) + 1 for f, s, o in zip(firsts, stride, size, strict=True)]
        cuts: tuple[Any, ...] = (..., *map(slice, firsts, ends, stride))
        result = result + numbers[cuts]
    return result


def each_axis(value: Any, axes: int) -> list[int]:
    """An argument as one number per axis."""
    return [value] * axes if isinstance(value, int) else list(value) * (axes if len(value) == 1 else 1)


def axes_of_pool(c: Call) -> int:
    """The number of axes of a pool."""
    return 3 if "3d" in c.base else 2


@rule("max_pool2d_with_indices", "max_pool3d_with_indices")
def _(
    c: Call,
    self: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[Residues, None]:
    axes = axes_of_pool(c)
    kernel = each_axis(kernel_size, axes)
    steps, around, apart = (each_axis(each, axes) for each in (stride or kernel, padding, dilation))
    return largest(c, c.operand(self), kernel, steps, around, apart), None


def largest(c: Call, numbers: Residues, kernel: Sides, steps: Sides, around: Sides, apart: Sides) -> Residues:
    """The maximum over each window.

    Max-pooling commutes with a lower bound such as relu, so the bound is applied after the pool. Two stacked maxima
    over adjacent windows are one maximum over wider windows; this also holds at the border, where both windows end at
    the last number.
    """
    origins, adjacent = c.field.origins, all(each == 1 for each in apart)
    if bounded := origins.of("at least", numbers):
        low = bounded[1]
        inner = largest(c, bounded[0], kernel, steps, around, apart)
        larger = oracle(c.field, "at least", inner, low, finite=True, sign=max(inner.sign, low.sign))
        return origins.note(larger, "at least", inner, low)
    if adjacent and (pooled := origins.of("pool", numbers)):
        numbers, wide, off = pooled
        kernel = [a + b - 1 for a, b in zip(kernel, wide, strict=True)]
        around = [a + b for a, b in zip(around, off, strict=True)]
    if numbers.mark is not None:
        raise Undecided("a number that is not finite in a pool")
    axes = len(kernel)
    where = (kernel, steps, around, apart, tuple(c.outs[0].shape[-axes:]))
    # Torch pads a maximum with -inf, which never wins; only a window of padding alone has no maximum.
    inside = windows(torch.ones(1, *numbers.shape[-axes:], dtype=torch.int64), *where)
    if bool((inside == 0).any()):
        raise Undecided("a pool over nothing but padding")
    hashes = windows(keyed_hashes(c.field, "max of", numbers), *where)
    maximum = oracle(c.field, "max", Residues(hashes), finite=numbers.finite, sign=numbers.sign)
    if adjacent and all(step == 1 for step in steps):
        origins.note(maximum, "pool", numbers, kernel, around)
    return maximum


@rule("avg_pool2d", "avg_pool3d")
def _(
    c: Call,
    self: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Residues:
    axes = axes_of_pool(c)
    if ceil_mode:
        raise Undecided("the argument ceil_mode")
    kernel, around = each_axis(kernel_size, axes), each_axis(padding, axes)
    where = (kernel, each_axis(stride or kernel, axes), around, [1] * axes, tuple(c.outs[0].shape[-axes:]))
    if divisor_override or count_include_pad or not any(around):
        summed = c.sums(lambda x: windows(x, *where), c.operand(self))
        return times(c.field, summed, 1, divisor_override or math.prod(kernel))
    return means(c, self, lambda x: windows(x, *where))


def means(c: Call, self: Any, sums: Callable[[Tensor], Tensor]) -> Residues:
    """The mean over each window, whose sizes may differ; `sums` computes the sum over each window."""
    counts = sums(torch.ones(self.shape[-axes_of_pool(c) :], dtype=torch.int64))
    shares = torch.zeros(c.field.count, *counts.shape, dtype=torch.int32)
    different = [count for count in counts.unique().tolist() if count]
    for prime, out in zip(c.field.primes, shares, strict=True):
        for count in different:
            out[counts == count] = pow(count, -1, prime)
    share = Residues(shares, sign=POSITIVE, degree=0, odd_divisor=math.lcm(*different))
    return mul(c.field, c.sums(sums, c.operand(self)), share)


def adaptive_sums(c: Call, numbers: Tensor) -> Tensor:
    """The sums over the windows of an adaptive pool.

    Raises:
        Undecided: the pool is empty.
    """
    for axis in range(-axes_of_pool(c), 0):
        side, count = numbers.shape[axis], c.outs[0].shape[axis]
        if not count:
            raise Undecided("an empty pool")
        ends = [(place * side // count, -(-(place + 1) * side // count)) for place in range(count)]
        parts = [numbers.narrow(axis, first, last - first).sum(axis, keepdim=True) for first, last in ends]
        numbers = torch.cat(parts, axis)
    return numbers


@rule("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def _(c: Call, self: Any, output_size: Any) -> Residues:
    return means(c, self, partial(adaptive_sums, c))


@rule("adaptive_max_pool2d", "adaptive_max_pool3d")
def _(c: Call, self: Any, output_size: Any) -> tuple[Residues, None]:
    numbers = c.operand(self)
    if numbers.mark is not None:
        raise Undecided("a number that is not finite in a pool")
    hashes = adaptive_sums(c, keyed_hashes(c.field, "max of", numbers))
    return oracle(c.field, "max", Residues(hashes), finite=numbers.finite, sign=numbers.sign), None
