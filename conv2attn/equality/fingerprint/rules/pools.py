"""Rules of pooling: sums and maxima over windows.

An example: an average over the windows of two of (a, b, c) is the sums (a + b, b + c), each times the inverse of 2
modulo each prime. A maximum is an oracle of the sums of two hashes, whose order does not count; see `formulas`.
"""

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.fingerprint.formulas import keyed_hashes, mul, oracle, times, total
from conv2attn.equality.fingerprint.residues import POSITIVE, Residues, knowledge
from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.rules.call import Call, rule

Sides = Sequence[int]


def windows(numbers: Tensor, kernel: Sides, stride: Sides, padding: Sides, dilation: Sides, size: Sides) -> Tensor:
    """The sum over each window of a (k, ..., *sides) of int64s, zeros beyond the border."""
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
    """A number for each axis."""
    return [value] * axes if isinstance(value, int) else list(value) * (axes if len(value) == 1 else 1)


def axes_of_pool(c: Call) -> int:
    """Along how many axes a pool goes."""
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

    A bound from below, as of relu, is put behind the pool. Maxima over windows of maxima over adjacent windows are
    maxima over windows as wide as both: beyond the border each of both ends at the last number.
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
    # Torch pads a maximum with -inf, which loses to every number: only a window of nothing else has no maximum.
    inside = windows(torch.ones(1, *numbers.shape[-axes:], dtype=torch.int64), *where)
    if bool((inside == 0).any()):
        raise Undecided("a pool over nothing but padding")
    hashes = windows(keyed_hashes(c.field, "max of", numbers), *where)
    found = oracle(c.field, "max", Residues(hashes), finite=numbers.finite, sign=numbers.sign)
    if adjacent and all(step == 1 for step in steps):
        origins.note(found, "pool", numbers, kernel, around)
    return found


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
    summed = c.sums(lambda x: windows(x, *where), c.operand(self))
    if divisor_override or count_include_pad or not any(around):
        return times(c.field, summed, 1, divisor_override or math.prod(kernel))
    counts = windows(torch.ones(self.shape[-axes:], dtype=torch.int64), *where)
    # One inverse for each count of numbers that a window may hold, and not one for each window.
    inverses = [[pow(n, -1, prime) if n else 0 for n in range(int(counts.max()) + 1)] for prime in c.field.primes]
    shares = torch.stack([torch.tensor(each, dtype=torch.int32)[counts] for each in inverses])
    odd_divisor = math.lcm(*counts.unique().tolist())
    return mul(c.field, summed, Residues(shares, sign=POSITIVE, degree=0, odd_divisor=odd_divisor))


def adaptive(c: Call, numbers: Residues, axis: int) -> list[tuple[int, int]]:
    """First place and length of the windows along an axis of a pool whose result has a given size.

    Raises:
        Undecided: there are none.
    """
    side, count = numbers.shape[axis], c.outs[0].shape[axis]
    if not count:
        raise Undecided("an empty pool")
    ends = [(place * side // count, -(-(place + 1) * side // count)) for place in range(count)]
    return [(first, last - first) for first, last in ends]


@rule("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def _(c: Call, self: Any, output_size: Any) -> Residues:
    numbers = c.operand(self)
    c.field.usable(numbers, "a pool")
    for axis in range(-axes_of_pool(c), 0):
        parts = []
        for first, length in adaptive(c, numbers, axis):
            part = numbers.but(values=numbers.values.narrow(axis, first, length))
            parts.append(times(c.field, total(c.field, part, [axis], True), 1, length))
        numbers = Residues(torch.cat([each.values for each in parts], axis), None, **knowledge(*parts))
    return numbers


@rule("adaptive_max_pool2d", "adaptive_max_pool3d")
def _(c: Call, self: Any, output_size: Any) -> tuple[Residues, None]:
    numbers = c.operand(self)
    if numbers.mark is not None:
        raise Undecided("a number that is not finite in a pool")
    hashes = keyed_hashes(c.field, "max of", numbers)
    for axis in range(-axes_of_pool(c), 0):
        parts = [hashes.narrow(axis, *window).sum(axis, keepdim=True) for window in adaptive(c, numbers, axis)]
        hashes = torch.cat(parts, axis)
    return oracle(c.field, "max", Residues(hashes), finite=numbers.finite, sign=numbers.sign), None
