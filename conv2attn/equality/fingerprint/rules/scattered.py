"""Rules of scatter sums: several numbers may go to one element, where they are added up.

An example: `scatter_add` of (5, 6, 7) at the indices (0, 0, 2) of (1, 1, 1) is (12, 1, 8). Residues are summed at the
same indices and reduced modulo each prime; each result is a sum of at most 1 + 3 numbers, which bounds its size.
"""

import math
from typing import Any

import torch

from conv2attn.equality.fingerprint.residues import Residues
from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.rules.call import Call, rule
from conv2attn.equality.fingerprint.rules.pointwise import scaled

MOST_OVERLAPS = 1 << 20
"""Sums of up to this many residues are exact in float64."""


@rule("col2im")
def _(c: Call, self: Any, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Residues:
    if math.prod(kernel_size) > MOST_OVERLAPS:
        raise Undecided(f"windows of {math.prod(kernel_size)} numbers")
    settings = output_size, kernel_size, dilation, padding, stride
    # Torch implements this only for floats. 2^20 residues below 2^31 add up below 2^53, exactly in float64.
    return c.sums(lambda x: torch.ops.aten.col2im(x.double(), *settings).long(), c.operand(self))


@rule("index_add")
def _(c: Call, self: Any, dim: int, index: Any, source: Any, alpha: Any = 1) -> Residues:
    places = c.numbers.real(index)
    return c.sums(lambda x, y: x.index_add(dim, places, y), c.operand(self), scaled(c, source, alpha))


@rule("scatter_add")
def _(c: Call, self: Any, dim: int, index: Any, src: Any) -> Residues:
    places = c.numbers.real(index)
    return c.sums(lambda x, y: x.scatter_add(dim, places, y), c.operand(self), c.operand(src))


@rule("cumsum")
def _(c: Call, self: Any, dim: int, dtype: Any = None) -> Residues:
    return c.sums(lambda x: x.cumsum(dim), c.operand(self))
