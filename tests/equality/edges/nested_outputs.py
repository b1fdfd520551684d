"""Outputs that hold themselves, are nested deep, or whose parts cannot be read: a verdict or one sentence, no crash."""

import enum
import warnings
from collections import UserDict, deque
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from equality.pairs import After
from torch import nn

import conv2attn
from conv2attn.equality import certify
from conv2attn.verdicts import Verdict

ONES = torch.ones(3)
IMAGES = torch.rand(2, 3, 6, 7, generator=torch.Generator().manual_seed(0))


class Link:
    """An object that holds itself, and the next of a chain."""

    def __init__(self, tensor, following=None):
        self.tensor, self.following, self.itself = tensor, following, self


@dataclass
class Pair:
    tensor: torch.Tensor
    other: Any = None


class Mute(UserDict):
    """A mapping that raises where its items are asked for."""

    def items(self):
        raise ValueError("no items")


class Rude:
    """An object that raises where it is compared or written."""

    __slots__ = ()

    def __repr__(self):
        raise ValueError("no words")

    def __eq__(self, other):
        raise ValueError("no equality")

    __hash__ = None  # type: ignore[assignment]


class Deaf:
    """An object that raises where it is asked for an attribute."""

    __slots__ = ()

    def __getattr__(self, name):
        raise ValueError("no attribute")


class Same:
    """Keys that look alike."""

    def __repr__(self):
        return "same"


class Kind(torch.Tensor):
    """A subclass."""


class Raising(torch.Tensor):
    """A subclass that allows no function."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        raise ValueError("no function")


class Number(enum.Enum):
    ONE = 1


def holding_itself(y):
    parts: list[Any] = [y]
    parts.append(parts)
    return parts


def in_a_ring(y):
    ring: dict[str, Any] = {"tensor": y, "parts": []}
    ring["parts"].append(ring)
    return ring


def pair_of_itself(y):
    pair = Pair(y)
    pair.other = (pair,)
    return pair


def deep(y, kind=lambda x: (x,)):
    for _ in range(900):
        y = kind(y)
    return y


def chain(y, last=None):
    link = Link(y if last is None else last)
    for _ in range(3000):
        link = Link(y, link)
    return y, link


def nested(y):
    with warnings.catch_warnings(action="ignore"):
        return torch.nested.nested_tensor(list(y))


def fake(y):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(3)


def quantised(y):
    with warnings.catch_warnings(action="ignore"):
        return torch.quantize_per_channel(y, torch.ones(len(y)), torch.zeros(len(y)), 0, torch.qint8)


def with_itself(y):
    y.itself = y
    return y


def enclosing(thing):
    return lambda y: y if thing is not None else None


KEPT = quantised(ONES)
NESTED = {
    "a list that holds itself": holding_itself,
    "a mapping in a ring": in_a_ring,
    "a dataclass that holds itself": pair_of_itself,
    "tuples 900 deep": deep,
    "mappings 900 deep": lambda y: deep(y, lambda x: {"a": x}),
    "dataclasses 900 deep": lambda y: deep(y, Pair),
    "a mapping without items": lambda y: Mute({"a": y}),
}
STRANGE = {
    "an object that holds itself": Link,
    "a chain of 3000 objects": chain,
    "a tensor that holds itself": with_itself,
    "a mapping by tensors": lambda y: {y.sum(): y},
    "a mapping by tensors of many numbers": lambda y: {y: y, y.sum(): 1},
    "a mapping by numbers of an enumeration": lambda y: {Number.ONE: y},
    "a conjugate": lambda y: torch.complex(y, y).conj(),
    "a negative": lambda y: torch.complex(y, y).conj().imag,
    "a subclass": lambda y: y.as_subclass(Kind),
    "a subclass without functions": lambda y: y.as_subclass(Raising),
    "a number of 5000 digits": lambda y: (y, 10**5000),
    "meta": lambda y: y.to("meta"),
    "meta beside a tensor": lambda y: (y, y.to("meta")),
    "a fake tensor": lambda y: (y, fake(y)),
    "nested": nested,
    "sparse": lambda y: (y, y.to_sparse()),
    "quantised": lambda y: (y, quantised(y)),
    "quantised, and kept in a function": lambda y: (y, KEPT),
    "8 bits": lambda y: y.to(torch.float8_e4m3fn),
    "an object that raises where it is compared": lambda y: (y, Rude()),
    "a queue": lambda y: (y, deque([y])),
    "a set": lambda y: (y, {y}),
    "a generator": lambda y: (y, (part for part in y)),
    "a function": lambda y: (y, lambda: y),
    "a network": lambda y: (y, nn.Linear(2, 2)),
    "an array": lambda y: (y, y.numpy()),
    "beside an object without attributes": enclosing(Deaf()),
}


def network(packed):
    """A convolution, and a function that packs what it returns."""
    return After(lambda net, y: packed(y)).eval()


def rewritten(packed):
    """The same formula, which is not the same code."""
    return After(lambda net, y: packed(y * 1)).eval()


SECONDS = {"converted": lambda packed: conv2attn.convert(network(packed)), "in other code": rewritten}


def asked(packed, second):
    return certify(network(packed), SECONDS[second](packed), images=IMAGES)


@pytest.mark.parametrize("second", SECONDS)
@pytest.mark.parametrize("name", NESTED)
def test_what_no_walk_ends_in_is_unsupported_in_one_sentence(name, second):
    found = asked(NESTED[name], second)
    assert (found.verdict, found.exit_code) == (Verdict.UNSUPPORTED, 3)
    assert [each.code for each in found.between] == ["C2A407"]


@pytest.mark.rotated
@pytest.mark.parametrize("second", SECONDS)
@pytest.mark.parametrize("name", STRANGE)
def test_what_cannot_be_read_is_no_crash_and_never_refuted(name, second):
    assert asked(STRANGE[name], second).verdict in (Verdict.HOLDS, Verdict.UNDECIDED, Verdict.UNSUPPORTED)


def test_parts_under_keys_that_look_alike_are_all_compared():
    first, second = Same(), Same()
    original = network(lambda y: {first: y, second: y})
    changed = network(lambda y: {first: y + 1, second: y})
    assert certify(original, changed, images=IMAGES).verdict is Verdict.REFUTED


DIFFERENT = {
    "in an object": (lambda y: Link(Link(y)), lambda y: Link(Link(y + 1))),
    "at the end of a chain": (lambda y: chain(y), lambda y: chain(y, last=y + 1)),
    "in a key": (lambda y: {y.sum(): y}, lambda y: {(y + 1).sum(): y}),
    "in the order of keys": (lambda y: {"a": y, "b": y}, lambda y: {"b": y, "a": y}),
    "by an item": (lambda y: {"a": y}, lambda y: {"a": y, "b": y}),
    "where none can be read": (lambda y: y.to("meta"), lambda y: (y + 1).to("meta")),
}


def branching(net, y):
    """Something else is returned where the layer is attention."""
    first, second = net.packed
    return y, (first if isinstance(net.conv, nn.Conv2d) else second)(y)


def same_structure(first, second):
    """Whether a network and its conversion count as the same but for their layers."""
    original = After(branching, packed=(first, second)).eval()
    found = certify(original, conv2attn.convert(original), images=IMAGES)
    return any((each.part, each.verdict) == ("structure", Verdict.HOLDS) for each in found.between)


@pytest.mark.parametrize("name", DIFFERENT)
def test_the_first_difference_is_seen(name):
    first, second = DIFFERENT[name]
    assert not same_structure(first, second)
    # A chain that is deeper than Python's stack is not known to be the same.
    assert name in ("where none can be read", "at the end of a chain") or same_structure(first, first)
