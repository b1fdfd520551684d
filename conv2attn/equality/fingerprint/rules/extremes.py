"""Rules of extremes over axes, of numbers and of truth values, and of sorted rows: the order does not count."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from conv2attn.equality.fingerprint.formulas import hashes_of_all, oracle, unordered
from conv2attn.equality.fingerprint.residues import Residues
from conv2attn.equality.fingerprint.ring import Undecided
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


@rule("all", "any")
def _(c: Call, self: Any, dim: Any = None, keepdim: bool = False) -> Residues:
    truths = c.operand(self)
    return unordered(c.field, f"{c.base} {c.dtype}", truths, axes_of(truths, dim), keepdim)


def sorted_at(c: Call, numbers: Residues, axis: int, places: Sequence[int]) -> Residues:
    """The numbers at some places of the sorted rows along an axis, the smallest at place 0: oracles of row and place.

    Raises:
        Undecided: there is no axis.
    """
    if not numbers.shape:
        raise Undecided("a sorted row of no axis")
    c.field.usable(numbers, c.base)
    axis %= len(numbers.shape)
    shape = [len(places) if each == axis else 1 for each in range(len(numbers.shape))]
    rows = hashes_of_all(c.field, "sorted", numbers, [axis], True)
    found = oracle(c.field, "sorted", rows, c.field.encode(torch.tensor(places).reshape(shape)), finite=True)
    return found.but(sign=numbers.sign)


@rule("sort")
def _(c: Call, self: Any, stable: Any = None, dim: int = -1, descending: bool = False) -> Residues:
    numbers = c.operand(self)
    places = range(numbers.shape[dim]) if numbers.shape else ()
    return sorted_at(c, numbers, dim, places[::-1] if descending else places)


@rule("topk")
def _(c: Call, self: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Residues:
    numbers = c.operand(self)
    if not sorted:
        raise Undecided("the largest numbers in no order")
    places = range(numbers.shape[dim]) if numbers.shape else ()
    return sorted_at(c, numbers, dim, (places[::-1] if largest else places)[:k])


@rule("kthvalue")
def _(c: Call, self: Any, k: int, dim: int = -1, keepdim: bool = False) -> Residues:
    return sorted_at(c, c.operand(self), dim, [k - 1]).laid(tuple(c.outs[0].shape))


@rule("median")
def _(c: Call, self: Any, dim: Any = None, keepdim: bool = False) -> Residues:
    numbers = c.operand(self)
    if dim is None:
        numbers, dim = numbers.laid((math.prod(numbers.shape),)), 0
    found = sorted_at(c, numbers, dim, [(numbers.shape[dim] - 1) // 2] if numbers.shape else [])
    return found.laid(tuple(c.outs[0].shape))
