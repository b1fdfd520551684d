"""Rules of extremes over axes: the order does not count."""

from typing import Any

from conv2attn.equality.fingerprint.formulas import unordered
from conv2attn.equality.fingerprint.residues import Residues
from conv2attn.equality.fingerprint.rules.call import Call, axes_of, rule


def extreme(c: Call, name: str, numbers: Residues, axes: list[int], keep: bool) -> Residues:
    """The largest or the smallest number along some axes, by its name "max" or "min"."""
    return unordered(c.field, name, numbers, axes, keep) if axes else numbers


@rule("amax", "amin")
def _(c: Call, self: Any, dim: Any = (), keepdim: bool = False) -> Residues:
    numbers = c.operand(self)
    return extreme(c, c.base[1:], numbers, axes_of(numbers, list(dim)) if numbers.shape else [], keepdim)


@rule("max", "min")
def _(c: Call, self: Any, dim: Any = None, keepdim: bool = False) -> Residues:
    numbers = c.operand(self)
    return extreme(c, c.base, numbers, axes_of(numbers, dim) if numbers.shape else [], keepdim)
