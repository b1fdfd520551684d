"""A cache of operator results: the second network repeats many computations of the first.

A rule reads an operator's arguments, and the residues, marks, signs and finiteness of its operands. Equal inputs
therefore give equal results, and the comparison stays complete: oracle values count each time they are used. Operands
are identified by hashes of all their numbers, whatever their strides. For a product by a constant each column is cached
separately: timm cuts queries, keys and values from one product, and transformers has three.
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
"""Most residues in the cache: 1.5 GiB. Later results are not cached."""
CHEAP = {"add", "sub", "mul", "neg", "var_mean", "clone", "_to_copy", "copy", "rsub", "addcmul", "lerp", "addmm", "mm"}
"""Operators not cached: too cheap to hash for, or with large results; and products, cached by column instead.
"""


@final
@dataclass(frozen=True, eq=False)
class Made:
    """A new tensor of a cached result, and its noted origins."""

    residues: Residues
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    origins: list[Any]

    def anew(self, run: Any, like: Tensor | None) -> FieldTensor:
        """The tensor in a new store, to which a network may write; laid out as `like`, or as before."""
        run.field.origins.renew(self.origins)
        there = FieldTensor(run, Store(self.dtype, residues=self.residues), self.size, self.stride)
        return there if like is None else run.numbers.fresh(like, run.numbers.residues(there))


@final
@dataclass(frozen=True, eq=False)
class Answer:
    """The cached result of an operator.

    Args:
        made: its new tensors.
        count: number of oracle values it used.
        operands: for each operand, the bounds that determine the error probability.
        strides: strides of the operands.
    """

    made: Any
    count: int
    operands: list[tuple[float, ...]]
    strides: list[tuple[int, ...]]

    def serves(self, operands: list[tuple[float, ...]]) -> bool:
        """Whether the bounds of the result also hold for these operands: none has a larger degree or height."""
        pairs = zip(self.operands, operands, strict=True)
        return all(
            ours % theirs == 0 and all(x >= y for x, y in zip(a, b, strict=True)) for (ours, *a), (theirs, *b) in pairs
        )


@final
class Answers:
    """The cached results of one field, for both networks."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.hashes: WeakKeyDictionary[Residues, dict[Geometry, str]] = WeakKeyDictionary()
        self.columns: dict[Any, dict[bytes, tuple[Tensor, int]]] = {}
        self.room = MOST_HELD

    def product(self, run: Any, tokens: FieldTensor, weight: Tensor, anew: Callable[[], Tensor]) -> Tensor:
        """The residues of the product of tokens by a matrix of constants: `anew` computes those not in the cache.

        Args:
            anew: computes them, (k, tokens, columns).
        """
        if not run.field.count:  # counting only
            return anew()
        numbers = memoryview(bytes_of(weight.mT).numpy())  # type: ignore[arg-type]
        step = max(1, weight.shape[0] * weight.element_size())
        hashes = [hashlib.sha256(numbers[at : at + step]).digest() for at in range(0, len(numbers), step)]
        cached_columns = self.columns.setdefault((self.hash_of(run, tokens), (*tokens.size(), weight.dtype)), {})
        if not hashes or not all(each in cached_columns for each in hashes):
            values = anew()
            if values.numel() <= self.room:
                self.room -= values.numel()
                cached_columns.update({each: (values, place) for place, each in enumerate(hashes)})
            return values
        # Adjacent columns are one slice, as in a product that was cut in three.
        runs = groupby(
            enumerate(map(cached_columns.__getitem__, hashes)), lambda each: (id(each[1][0]), each[1][1] - each[0])
        )
        parts = [[entry for _, entry in run] for _, run in runs]
        slices = [part[0][0][..., part[0][1] : part[-1][1] + 1] for part in parts]
        return slices[0] if len(slices) == 1 else torch.cat(slices, -1)

    def answer(self, run: Any, base: str, operator: str, arguments: Any, form: Any, anew: Callable[[], Any]) -> Any:
        """The result of an operator: from the cache if it is there, otherwise from `anew`.

        Args:
            form: returns the result without numbers, in torch's layout.
        """
        # An operator composed of others is cached as a whole.
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
                # The error probability counts pairs of values, so repeated values of this network count again, although
                # nothing is computed.
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
        """The cache key of an operator and its arguments: numbers by hashes, and which operands are identical."""
        # x * x is known to be non-negative, but x * y of equal numbers is not: the key includes which operands are
        # identical.
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
        """A hash of the residues of a view, of its marks, and of the properties that rules read."""
        stored = tensor.field_store.residues
        assert stored is not None
        # A write creates new residues, so those of a store never change.
        hashes = self.hashes.setdefault(stored, {})
        if tensor.field_view not in hashes:
            view = run.numbers.residues(tensor)
            digest = hashlib.sha256(f"{view.sign} {view.finite} {view.mark is None}".encode())
            for part in (view.values, *([] if view.mark is None else [view.mark])):
                digest.update(memoryview(bytes_of(part).numpy()))  # type: ignore[arg-type]
            hashes[tensor.field_view] = digest.hexdigest()
        return hashes[tensor.field_view]


def bounds_of(tensor: FieldTensor) -> tuple[float, ...]:
    """The bounds of a tensor's numbers that determine the error probability."""
    numbers = tensor.field_store.residues
    assert numbers is not None
    return numbers.odd_divisor, numbers.degree, numbers.size_bits, numbers.halvings


def made_of(run: Any, tensor: FieldTensor) -> Made:
    """A new tensor as a part of a cached result."""
    numbers = tensor.field_store.residues
    assert numbers is not None
    return Made(numbers, tensor.dtype, *tensor.field_view[:2], run.field.origins.about(numbers))
