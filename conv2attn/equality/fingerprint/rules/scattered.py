"""Rules of sums into places: several numbers may go to one place, where they are added up.

An example: `scatter_add` of (5, 6, 7) at the places (0, 0, 2) of (1, 1, 1) is (12, 1, 8). Residues are summed in the
same places and taken modulo each prime; each result is a sum of at most 1 + 3 numbers, which bounds its size.
"""

import math
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.fingerprint.residues import NOT_NEGATIVE, Residues, bits_of_sum, knowledge
from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.rules.call import Call, rule
from conv2attn.equality.fingerprint.rules.pointwise import scaled

MOST_OVERLAPS = 1 << 20
"""Sums of so many residues are exact in float64."""


@rule("col2im")
def _(c: Call, self: Any, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Residues:
    numbers = c.operand(self)
    c.field.usable(numbers, "a sum of windows")
    terms = math.prod(kernel_size)
    if terms > MOST_OVERLAPS:
        raise Undecided(f"windows of {terms} numbers")
    settings = output_size, kernel_size, dilation, padding, stride
    # Torch has this for floats alone: 2^20 residues below 2^31 add up below 2^53, exactly in float64.
    sums = torch.stack([torch.ops.aten.col2im(each.double(), *settings) for each in numbers.values])
    return numbers.but(
        values=c.field.reduced(sums.to(torch.int64)),
        size_bits=numbers.size_bits + bits_of_sum(terms),
        sign=min(numbers.sign, NOT_NEGATIVE),
    )


def axis_of_both(c: Call, target: Residues, source: Residues, dim: int) -> int:
    """The axis of the residues along which numbers are added.

    Raises:
        Undecided: numbers are not finite, or do not have as many axes.
    """
    c.field.usable(target, "a sum")
    c.field.usable(source, "a sum")
    if not target.shape or len(target.shape) != len(source.shape):
        raise Undecided("sums into a number without axes")
    return dim % len(target.shape) + 1


def sums_of(c: Call, target: Residues, source: Residues, sums: Tensor, terms: int) -> Residues:
    """`sums` as residues; each is a sum of one number of the target and at most `terms` of the source."""
    facts = knowledge(target, source)
    facts["size_bits"] += bits_of_sum(1 + terms)
    return Residues(c.field.reduced(sums), None, **facts)


@rule("index_add")
def _(c: Call, self: Any, dim: int, index: Any, source: Any, alpha: Any = 1) -> Residues:
    target, added, places = c.operand(self), scaled(c, source, alpha), c.numbers.real(index)
    axis = axis_of_both(c, target, added, dim)
    sums = target.values.long().index_add(axis, places, added.values.long())
    return sums_of(c, target, added, sums, places.numel())


@rule("scatter_add")
def _(c: Call, self: Any, dim: int, index: Any, src: Any) -> Residues:
    target, added, places = c.operand(self), c.operand(src), c.numbers.real(index)
    axis = axis_of_both(c, target, added, dim)
    at = places.expand(len(target.values), *places.shape)
    sums = target.values.long().scatter_add(axis, at, added.values.long())
    return sums_of(c, target, added, sums, places.numel())
