"""What operators returned already: of two networks the second asks much that the first has asked.

A rule reads the arguments of an operator, and of its operands the residues, the marks, the signs and whether they are
finite. So one question has one answer, and nothing is compared less: values of oracles count each time they are asked
for. Operands are kept as hashes of all their numbers, whatever their strides. Of a product by a constant each column is
a question: timm cuts queries, keys and values from one product, and transformers has three.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from conv2attn.equality.fingerprint.residues import Residues
from conv2attn.equality.fingerprint.tensors import FieldTensor, Geometry, Store
from conv2attn.equality.twins.bits import bytes_of
from conv2attn.torch_internals import tree_leaves, tree_map

MOST_HELD = 3 << 27
"""Residues that are held: 1.5 GiB. Later questions are answered anew."""
CHEAP = {"add", "sub", "mul", "neg", "var_mean", "clone", "_to_copy", "copy", "rsub", "addcmul", "lerp", "addmm", "mm"}
"""Operators that take less time than the hashes of their operands, or less than their results are worth in memory; and
products, whose columns are held."""


@final
@dataclass(frozen=True, eq=False)
class Made:
    """A new tensor of an answer, and what is noted of its origins."""

    residues: Residues
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    origins: list[Any]

    def anew(self, run: Any, like: Tensor | None) -> FieldTensor:
        """The tensor in a store of its own, to which a network may write; laid out as `like`, or as it was."""
        run.field.origins.renew(self.origins)
        there = FieldTensor(run, Store(self.dtype, residues=self.residues), self.size, self.stride)
        return there if like is None else run.numbers.fresh(like, run.numbers.residues(there))


@final
@dataclass(frozen=True, eq=False)
class Answer:
    """What an operator returned.

    Args:
        made: its tensors.
        count: how many values of oracles it took.
        operands: what bounds the chance, of each operand.
        strides: of the operands.
    """

    made: Any
    count: int
    operands: list[tuple[float, ...]]
    strides: list[tuple[int, ...]]

    def serves(self, operands: list[tuple[float, ...]]) -> bool:
        """Whether what is said of the result is true for these operands too: none has a larger degree or height."""
        pairs = zip(self.operands, operands, strict=True)
        return all(
            ours % theirs == 0 and all(x >= y for x, y in zip(a, b, strict=True)) for (ours, *a), (theirs, *b) in pairs
        )


@final
class Answers:
    """The answers of one field, for both networks."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.hashes: WeakKeyDictionary[Residues, dict[Geometry, str]] = WeakKeyDictionary()
        self.columns: dict[Any, dict[bytes, tuple[Tensor, int]]] = {}
        self.room = MOST_HELD

    def product(self, run: Any, tokens: FieldTensor, weight: Tensor, anew: Callable[[], Tensor]) -> Tensor:
        """The residues of the product of tokens by a matrix of constants: `anew` unless all its columns are held.

        Args:
            anew: computes them, (k, tokens, columns).
        """
        if not run.field.count:  # nothing is computed
            return anew()
        numbers = memoryview(bytes_of(weight.mT).numpy())  # type: ignore[arg-type]
        step = max(1, weight.shape[0] * weight.element_size())
        hashes = [hashlib.sha256(numbers[at : at + step]).digest() for at in range(0, len(numbers), step)]
        held = self.columns.setdefault((self.hash_of(run, tokens), (*tokens.size(), weight.dtype)), {})
        if not hashes or not all(each in held for each in hashes):
            values = anew()
            if values.numel() <= self.room:
                self.room -= values.numel()
                held.update({each: (values, place) for place, each in enumerate(hashes)})
            return values
        # Columns that lie side by side are one slice, as those of a product that was cut in three.
        runs = groupby(enumerate(map(held.__getitem__, hashes)), lambda each: (id(each[1][0]), each[1][1] - each[0]))
        parts = [[entry for _, entry in run] for _, run in runs]
        slices = [part[0][0][..., part[0][1] : part[-1][1] + 1] for part in parts]
        return slices[0] if len(slices) == 1 else torch.cat(slices, -1)

    def answer(self, run: Any, base: str, operator: str, arguments: Any, form: Any, anew: Callable[[], Any]) -> Any:
        """What an operator returns: as before where it was asked before, else `anew`.

        Args:
            form: gives the result without numbers, as torch lays it out.
        """
        # Of an operator that is made of others the whole is held.
        if base in CHEAP or self.room <= 0 or run.depth:
            return anew()
        leaves = [each for each in tree_leaves(arguments) if isinstance(each, Tensor)]
        strides = [tuple(each.stride()) for each in leaves]
        operands = [bounds_of(each) for each in leaves if isinstance(each, FieldTensor) and run.numbers.depends(each)]
        question, field = self.question(run, operator, arguments), run.field
        answer = self.answers.get(question)
        if answer is not None and answer.serves(operands):
            parts = tree_leaves(answer.made)
            laid = [None for _ in parts] if answer.strides == strides else tree_leaves(form())
            if all(like is None or like.size() == each.size for like, each in zip(laid, parts, strict=True)):
                # The chance counts pairs of values, so those that this network asks again count again, though nothing
                # is computed.
                field.oracle_values += answer.count
                layouts = iter(laid)
                return tree_map(lambda each: each.anew(run, next(layouts)), answer.made)
        before = field.oracle_values
        out = anew()
        parts = tree_leaves(out)
        if answer is None and all(map(run.numbers.depends, parts)) and not any(each.field_view[2] for each in parts):
            size = sum(each.field_store.residues.values.numel() for each in parts)
            if size > self.room:
                return out
            self.room -= size
            made = tree_map(lambda each: made_of(run, each), out)
            self.answers[question] = Answer(made, field.oracle_values - before, operands, strides)
        return out

    def question(self, run: Any, operator: str, arguments: Any) -> str:
        """An operator and its arguments in words: numbers by hashes, and which operands are one."""
        # x * x is known not to be negative, and x * y of equal numbers is not: which operands are one is asked too.
        views = list[Any]()

        def in_words(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return type(value), value
            form = (tuple(value.size()), value.dtype)
            if not isinstance(value, FieldTensor) or not run.numbers.depends(value):
                return "real", *form, run.field.digest(run.numbers.real(value))
            views.append((id(value.field_store), value.field_view))
            return self.hash_of(run, value), *form, views.index(views[-1])

        return f"{operator} {tree_map(in_words, arguments)}"

    def hash_of(self, run: Any, tensor: FieldTensor) -> str:
        """A hash of the residues of a view, of its marks, and of what rules ask of its numbers."""
        stored = tensor.field_store.residues
        assert stored is not None
        # A write makes new residues, so those of a store never change.
        hashes = self.hashes.setdefault(stored, {})
        if tensor.field_view not in hashes:
            view = run.numbers.residues(tensor)
            digest = hashlib.sha256(f"{view.sign} {view.finite} {view.mark is None}".encode())
            for part in (view.values, *([] if view.mark is None else [view.mark])):
                digest.update(memoryview(bytes_of(part).numpy()))  # type: ignore[arg-type]
            hashes[tensor.field_view] = digest.hexdigest()
        return hashes[tensor.field_view]


def bounds_of(tensor: FieldTensor) -> tuple[float, ...]:
    """What bounds the chance of a wrong answer, of the numbers of a tensor."""
    numbers = tensor.field_store.residues
    assert numbers is not None
    return numbers.odd_divisor, numbers.degree, numbers.size_bits, numbers.halvings


def made_of(run: Any, tensor: FieldTensor) -> Made:
    """A new tensor as a part of an answer."""
    numbers = tensor.field_store.residues
    assert numbers is not None
    return Made(numbers, tensor.dtype, *tensor.field_view[:2], run.field.origins.about(numbers))
