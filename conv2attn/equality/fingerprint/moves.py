"""Operators that only move numbers: the same operator runs on the indices of the numbers, where index 0 is a zero.

An example: the operands of `cat((a, b, c), (d,))` have the indices (1, 2, 3) and (4). Torch concatenates these to (1,
2, 3, 4), the index of each residue of the result. Padding (a, b) by a zero gives the indices (0, 1, 2, 0).
"""

import math
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.fingerprint.families import FLOAT_MOVES, MIXED, MOVES, NEAREST
from conv2attn.equality.fingerprint.numbers import Numbers
from conv2attn.equality.fingerprint.residues import NOT_NEGATIVE, Residues, knowledge
from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.tensors import FieldTensor, without_numbers
from conv2attn.torch_internals import tree_leaves, tree_map

aten = torch.ops.aten
SCATTERED = {"index_put": "values", "scatter": "src", "index_copy": "source"}
"""Moves to indices given by an argument, and the argument with the numbers."""


MASKING = ("masked_fill", "where")
"""Moves that mask scores by a constant."""


class Places:
    """Numbers the elements of all operands consecutively, from 1."""

    def __init__(self, numbers: Numbers, dtype: torch.dtype, kind: torch.dtype, masks: bool = False):
        self.numbers, self.dtype, self.kind, self.masks = numbers, dtype, kind, masks
        self.first, self.pool = 1, list[Residues]()

    def of(self, value: Any) -> Any:
        """The indices of an operand's elements, in its shape.

        Raises:
            Undecided: the value is neither tensor nor number.
        """
        if value is None:
            return None
        if not isinstance(value, Tensor | bool | int | float):
            raise Undecided("an argument that is not a number")
        size = tuple(value.size()) if isinstance(value, Tensor) else ()
        self.pool.append(self.numbers.operand(self.numbers.masking(value) if self.masks else value, self.dtype))
        count = math.prod(size)
        places = torch.arange(self.first, self.first + count, dtype=self.kind).reshape(size)
        self.first += count
        if not isinstance(value, Tensor):
            return int(places)
        # Torch may follow the order of memory, as `clone` does, so the indices have the memory layout of the operand.
        strides = zip(size, value.stride(), strict=True)
        if count and not any(step == 0 and side > 1 for side, step in strides):
            return torch.empty_strided(size, tuple(value.stride()), dtype=self.kind).copy_(places)
        return places

    def table(self) -> tuple[Tensor, Tensor | None]:
        """The residues of all elements, (k, 1 + elements), and their marks; None if no number has a mark."""
        count = self.numbers.field.count
        zero = torch.zeros(count, 1, dtype=torch.int32)
        values = torch.cat([zero, *(each.values.reshape(count, math.prod(each.shape)) for each in self.pool)], 1)
        if all(each.mark is None for each in self.pool):
            return values, None
        marks = [torch.zeros(1, dtype=torch.int8)]
        for each in self.pool:
            blank = torch.zeros(math.prod(each.shape), dtype=torch.int8)
            marks.append(blank if each.mark is None else each.mark.reshape(-1))
        return values, torch.cat(marks)


def move_numbers(numbers: Numbers, func: Any, base: str, bound: dict[str, Any]) -> FieldTensor:
    """The numbers of the operands at their new indices.

    Raises:
        Undecided: the operator adds numbers up, writes an element twice, or has more elements than its dtype can count.
    """
    moved = {name: value for name, value in bound.items() if name in MOVES[base] and value is not None}
    tensors = [leaf for name in MOVES[base] for leaf in tree_leaves(moved.get(name)) if isinstance(leaf, Tensor)]
    dtype = func(**tree_map(without_numbers, bound)).dtype if base in MIXED else tensors[0].dtype
    if base in ("scatter", "index_put") and (bound.get("reduce") or bound.get("accumulate")):
        raise Undecided("the argument reduce or accumulate")
    if base in NEAREST and not dtype.is_floating_point:
        raise Undecided(f"the dtype {dtype}")  # too few indices
    if dtype.is_complex:
        raise Undecided("complex numbers")
    # If torch moves only floats, indices are floats, and there must not be more than float64 holds exactly.
    kind = torch.int64 if base not in FLOAT_MOVES else dtype if base in NEAREST else torch.float64
    places = Places(numbers, dtype, kind, base in MASKING)
    call = {n: tree_map(places.of if n in moved else numbers.real, value) for n, value in bound.items()}
    check_once(base, call)
    placed = func(**call)
    if not isinstance(placed, Tensor):
        raise Undecided("several results")
    if kind.is_floating_point and places.first * torch.finfo(kind).eps > 1:
        raise Undecided("too many numbers for such an operator")
    at = placed.to(torch.int64)
    flat = at.reshape(-1)
    values, marks = places.table()
    mark = None if marks is None else marks[flat].reshape(at.shape)
    facts = knowledge(*places.pool)
    # Index 0 is the zero of padding, so positive operands give a result that is only non-negative.
    if bool((flat == 0).any()):
        facts["sign"] = min(NOT_NEGATIVE, facts["sign"])
    like = torch.empty_strided(placed.size(), placed.stride(), dtype=dtype, device="meta")
    mark = mark if mark is not None and bool(mark.any()) else None
    return numbers.fresh(like, Residues(values[:, flat].reshape(len(values), *at.shape), mark, **facts))


def check_once(base: str, call: dict[str, Any]) -> None:
    """Refuses a move that writes an element twice, since the order would matter.

    Raises:
        Undecided: it writes an element twice.
    """
    if base not in SCATTERED or not isinstance(call.get(SCATTERED[base]), Tensor):
        return
    # The same move with ones, added up, counts how often each element is written.
    none, one = torch.zeros_like(call["self"]), torch.ones_like(call[SCATTERED[base]])
    if base == "index_put":
        counts = aten.index_put(none, call["indices"], one, True)
    elif base == "scatter":
        counts = none.scatter_add(call["dim"], call["index"], one)
    else:
        counts = none.index_add(call["dim"], call["index"], one)
    if bool((counts > 1).any()):
        raise Undecided("writes a place twice")
