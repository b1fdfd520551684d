"""What operators returned already: of two networks the second asks much that the first has asked.

A rule reads the arguments of an operator, and of its operands the residues, the marks and what is known of them. So one
question has one answer, and nothing is compared less: values of oracles count each time they are asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from conv2attn.equality.fingerprint.residues import Residues
from conv2attn.equality.fingerprint.tensors import FieldTensor, Store
from conv2attn.torch_internals import tree_leaves, tree_map

MOST_HELD = 1 << 27
"""Residues that are held: 1 GiB. Later questions are answered anew."""


@final
@dataclass(frozen=True, eq=False)
class Made:
    """A new tensor of an answer."""

    residues: Residues
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def anew(self, run: Any) -> FieldTensor:
        """The tensor in a store of its own, to which a network may write."""
        return FieldTensor(run, Store(self.dtype, residues=self.residues), self.size, self.stride)


@final
class Answers:
    """The answers of one field, for both networks."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[Any, int]] = {}
        self.alike: dict[tuple[Any, ...], list[Residues]] = {}
        self.held: dict[int, Residues] = {}
        self.room = MOST_HELD

    def answer(self, run: Any, operator: str, arguments: Any, anew: Callable[[], Any]) -> Any:
        """What an operator returns: as before where it was asked before, else `anew`."""
        question, field = self.question(run, operator, arguments), run.field
        if question in self.answers:
            made, asked = self.answers[question]
            # The chance counts pairs of values, so those that this network asks again count again, though nothing is
            # computed.
            field.oracle_values += asked
            return tree_map(lambda each: each.anew(run), made)
        before = field.oracle_values
        out = anew()
        if question is not None and all(self.number(each.field_store) for each in tree_leaves(out)):
            made = tree_map(lambda each: Made(each.field_store.residues, each.dtype, *each.field_view[:2]), out)
            self.answers[question] = made, field.oracle_values - before
        return out

    def number(self, store: Store) -> int | None:
        """A number for what a store holds, the same for equal numbers; None where there is no more room."""
        numbers = store.residues
        assert numbers is not None
        if id(numbers) in self.held:
            return id(numbers)
        # The sum only chooses which tensors to compare: `equals` decides, so a collision costs time and no truth.
        alike = self.alike.setdefault((tuple(numbers.values.shape), int(numbers.values.sum())), [])
        same = next((each for each in alike if each.equals(numbers)), None)
        if same is None:
            if numbers.values.numel() > self.room:
                return None
            self.room -= numbers.values.numel()
            self.held[id(numbers)] = same = numbers
            alike.append(numbers)
        store.residues = same
        return id(same)

    def question(self, run: Any, operator: str, arguments: Any) -> str | None:
        """An operator and its arguments in words: numbers by what they are, and which operands share a store."""
        # x * x is known not to be negative, and x * y of equal numbers is not: which operands share a store is asked
        # too.
        stores = [id(each.field_store) for each in tree_leaves(arguments) if isinstance(each, FieldTensor)]
        full = False

        def in_words(value: Any) -> Any:
            nonlocal full
            if not isinstance(value, Tensor):
                return type(value), value
            form = (tuple(value.size()), tuple(value.stride()), value.dtype)
            if not isinstance(value, FieldTensor) or not run.numbers.depends(value):
                return "real", *form, run.field.digest(run.numbers.real(value))
            number = self.number(value.field_store)
            full = full or number is None
            return number, *form, value.storage_offset(), stores.index(id(value.field_store))

        words = f"{operator} {tree_map(in_words, arguments)}"
        return None if full else words
