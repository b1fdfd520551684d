"""Terms: what a node of a graph computes of what. One table holds those of two graphs; equal terms are one object."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, final

import torch
from torch import Tensor

SYMBOLIC_SIZES = (torch.SymInt, torch.SymFloat, torch.SymBool)


@final
class Term:
    """An operator and its arguments: terms, or plain values. Two terms of one table are equal if they are one."""

    __slots__ = ("arguments", "number", "operator")

    def __init__(self, operator: str, arguments: tuple[Any, ...], number: int):
        self.operator, self.arguments, self.number = operator, arguments, number


@final
@dataclass(eq=False)
class Terms:
    """The table of the terms of two graphs."""

    every: dict[tuple[Any, ...], Term] = field(default_factory=dict)
    skeletons: dict[Term, Term] = field(default_factory=dict)
    bare: dict[tuple[Any, ...], Term] = field(default_factory=dict)
    digests: dict[int, tuple[Tensor, str]] = field(default_factory=dict)
    constants: dict[Term, Tensor] = field(default_factory=dict)
    kinds: dict[Term, tuple[torch.dtype, int]] = field(default_factory=dict)

    def __call__(self, operator: str, *arguments: Any) -> Term:
        """The term of an operator and its arguments, of which plain values are kept with their type."""
        key = (operator, tuple(map(plain, arguments)))
        term = self.every.get(key)
        if term is None:
            term = self.every[key] = Term(*key, len(self.every))
        return term

    def constant(self, tensor: Tensor) -> Term:
        """The term of a constant: dtype, shape and all bits."""
        term = self("constant", str(tensor.dtype), tuple(tensor.shape), self.bits(tensor))
        self.constants[term] = tensor
        return term

    def fits(self, term: Any, made: Any) -> bool:
        """Whether what a term, or each of several, stands for has this dtype and number of axes wherever it stands."""
        if isinstance(term, tuple):
            return all(map(self.fits, term, made))
        if not isinstance(made, Tensor):
            return True
        return self.kinds.setdefault(term, (made.dtype, made.ndim)) == (made.dtype, made.ndim)

    def skeleton(self, term: Term) -> Term:
        """A term as it is without the numbers of constants; terms that differ in these alone have one."""
        for each in itertools.islice(self.every.values(), len(self.skeletons), None):  # arguments come first
            arguments = each.arguments[:-1] if each.operator == "constant" else each.arguments
            key = each.operator, replaced(arguments, self.skeletons)
            self.skeletons[each] = self.bare.setdefault(key, Term(*key, len(self.bare)))
        return self.skeletons[term]

    def bits(self, tensor: Tensor) -> str:
        """SHA-256 of the numbers of a tensor; NaN and the sign of zero count."""
        if id(tensor) not in self.digests:
            row = tensor.detach().cpu().reshape(-1).clone(memory_format=torch.contiguous_format)
            numbers: Any = row.view(torch.uint8).numpy() if row.numel() else b""
            self.digests[id(tensor)] = tensor, sha256(numbers).hexdigest()
        return self.digests[id(tensor)][1]


def plain(item: Any) -> Any:
    """An argument as part of a key: `1`, `1.0` and `True` are three, and so are the two zeros."""
    if isinstance(item, Term | str) or type(item) is int:
        return item
    if isinstance(item, tuple | list):
        return tuple(map(plain, item))
    return type(item).__name__, repr(item)


def replaced(item: Any, by: Mapping[Term, Any]) -> Any:
    """Arguments with something else for each term."""
    if isinstance(item, tuple):
        return tuple(replaced(each, by) for each in item)
    return by[item] if isinstance(item, Term) else item


@final
@dataclass(frozen=True, eq=False)
class Value:
    """A tensor in a graph: its term, and a tensor without numbers that has its dtype and symbolic shape."""

    term: Term
    fake: Tensor
    size: Callable[[Any], Any]

    @property
    def rank(self) -> int:
        """Its number of axes."""
        return self.fake.ndim

    @property
    def shape(self) -> tuple[Any, ...]:
        """Its sides: integers, or texts in the sides of the images."""
        return tuple(map(self.size, self.fake.shape))

    @property
    def floating(self) -> bool:
        """Whether it holds floating-point numbers."""
        return self.fake.is_floating_point()


@final
@dataclass(frozen=True, eq=False)
class Call:
    """One operator of a graph with its arguments by name, defaults filled in; tensors are values.

    Args:
        name: as `aten::relu`: that of the form that changes nothing in place.
        made: what it returns, without numbers.
    """

    terms: Terms
    name: str
    arguments: Mapping[str, Any]
    made: Any
    size: Callable[[Any], Any]

    def __getitem__(self, name: str) -> Any:
        return self.arguments.get(name)

    @property
    def first(self) -> Value:
        """Its first argument, a tensor."""
        value = next(iter(self.arguments.values()))
        assert isinstance(value, Value)
        return value

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sides of what it returns."""
        return tuple(map(self.size, self.made.shape))

    def term(self, operator: str, *arguments: Any) -> Term:
        """The term of an operator of these values."""
        return self.terms(operator, *map(self.key, arguments))

    def key(self, item: Any) -> Any:
        """An argument as part of a term."""
        if isinstance(item, Value):
            return item.term
        if isinstance(item, list | tuple):
            return tuple(map(self.key, item))
        return self.size(item) if isinstance(item, SYMBOLIC_SIZES) else item

    def whole(self) -> Term:
        """The term of the call as it is."""
        return self.term(self.name, *self.arguments.values())


def axes_from_front(axes: Any, rank: int) -> tuple[int, ...]:
    """Axes counted from the front, in their order; all of them for None or an empty list."""
    listed = [] if axes is None else axes if isinstance(axes, list | tuple) else [axes]
    return tuple(sorted({axis % rank for axis in listed} or range(rank))) if rank else ()


def fits_a_float(item: Any) -> bool:
    """Whether an argument is a number that fits a float."""
    return type(item) in (int, float) and not (isinstance(item, int) and abs(item) > 1 << 53)


def exponent(number: float) -> bool:
    """Whether a number is a power of two whose reciprocal is one as well."""
    return math.frexp(abs(number))[0] == 0.5 and 2.0**-100 < abs(number) < 2.0**100


def sides(shape: Sequence[Any], axes: Sequence[int]) -> tuple[Any, ...]:
    """A shape without some axes."""
    return tuple(side for axis, side in enumerate(shape) if axis not in axes)
