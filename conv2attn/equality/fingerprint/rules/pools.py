"""Rules of pooling: sums and maxima over windows."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.fingerprint.formulas import finish, lanes, mul, times, total
from conv2attn.equality.fingerprint.residues import NOT_NEGATIVE, POSITIVE, Residues, knowledge
from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.rules.call import Call, rule

Pair = Sequence[int]


def windows(numbers: Tensor, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, size: Pair) -> Tensor:
    """The sum over each window of a (k, ..., rows, columns) of int64s, zeros beyond the border."""
    shape = zip(size, stride, dilation, kernel, strict=True)
    need = [(o - 1) * s + d * (k - 1) + 1 for o, s, d, k in shape]
    last = zip(padding, need, numbers.shape[-2:], strict=True)
    amounts = [(before, max(0, wanted - side - before)) for before, wanted, side in last]
    numbers = torch.nn.functional.pad(numbers, (*amounts[1], *amounts[0]))
    result = torch.zeros((), dtype=numbers.dtype)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            first = (i * dilation[0], j * dilation[1])
            rows, columns = (slice(f, f + s * (o - 1) + 1, s) for f, s, o in zip(first, stride, size, strict=True))
            result = result + numbers[..., rows, columns]
    return result


def pair(value: Any) -> list[int]:
    """A number for each of two axes."""
    return [value, value] if isinstance(value, int) else list(value) * (2 if len(value) == 1 else 1)


@rule("max_pool2d_with_indices")
def _(
    c: Call,
    self: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[Residues, None]:
    numbers, kernel = c.operand(self), pair(kernel_size)
    if numbers.mark is not None:
        raise Undecided("a number that is not finite in a pool")
    steps = pair(stride) if stride else kernel
    where = (kernel, steps, pair(padding), pair(dilation), tuple(c.outs[0].shape[-2:]))
    inside = windows(torch.ones(1, *numbers.shape[-2:], dtype=torch.int64), *where)
    if bool((inside == 0).any()):
        raise Undecided("a pool over nothing but padding")
    hashes = windows(lanes(c.field, "max of", numbers), *where)
    values = finish(c.field, lanes(c.field, "max", Residues(hashes)))
    return Residues(values, None, numbers.finite, numbers.sign), None


@rule("avg_pool2d")
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
    numbers, kernel = c.operand(self), pair(kernel_size)
    c.field.usable(numbers, "a pool")
    if ceil_mode:
        raise Undecided("the argument ceil_mode")
    where = (kernel, pair(stride) if stride else kernel, pair(padding), [1, 1], tuple(c.outs[0].shape[-2:]))
    padded = any(pair(padding))
    sums = windows(numbers.values, *where)
    values = torch.stack([each % prime for each, prime in zip(sums, c.field.primes, strict=True)])
    up, sign = numbers.up + math.log2(math.prod(kernel)), min(numbers.sign, NOT_NEGATIVE if padded else POSITIVE)
    summed = numbers.but(values=values, up=up, sign=sign)
    if divisor_override or count_include_pad or not padded:
        return times(c.field, summed, 1, divisor_override or math.prod(kernel))
    counts = windows(torch.ones(1, *numbers.shape[-2:], dtype=torch.int64), *where)[0]
    inverses = [[pow(n, -1, prime) if n else 0 for n in range(int(counts.max()) + 1)] for prime in c.field.primes]
    shares = torch.stack([torch.tensor(each)[counts] for each in inverses])
    odd = math.lcm(*counts.unique().tolist())
    return mul(c.field, summed, Residues(shares, None, True, POSITIVE, 0, 0, 0, odd))


@rule("_adaptive_avg_pool2d")
def _(c: Call, self: Any, output_size: Any) -> Residues:
    numbers = c.operand(self)
    c.field.usable(numbers, "a pool")
    for axis, count in zip((-2, -1), output_size, strict=True):
        side = numbers.shape[axis]
        parts = []
        for place in range(count):
            first, last = place * side // count, -(-(place + 1) * side // count)
            part = numbers.but(values=numbers.values.narrow(axis, first, last - first))
            parts.append(times(c.field, total(c.field, part, [axis], True), 1, last - first))
        numbers = Residues(torch.cat([each.values for each in parts], axis), None, **knowledge(*parts))
    return numbers
