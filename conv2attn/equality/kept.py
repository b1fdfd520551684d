"""The state of a caller's own network: kept before a plain call, and put back where the call changed it.

    network.past: list           its members, in place: the list stays the same object
    norm.running_mean: Tensor    its bits, memory, gradient, and whether it trains
    hook.__closure__             what its cells hold

What did not change is not touched, since another thread may use it.
"""

import random
import re
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from itertools import chain
from typing import Any, final

import torch
from torch import Tensor, fx, nn

from conv2attn.equality.bits import same_bits
from conv2attn.equality.twins import ATOMS, BUILT_IN, TYPES, WITHOUT_STATE
from conv2attn.equality.walked_modules import OF_CONVERSION, OF_GRAPHS

FIXED = (*ATOMS, *TYPES, float, complex, re.Pattern, Enum)
NOTES_OF_GRAPHS = (*OF_CONVERSION, *OF_GRAPHS)
HEAP_TYPE = 1 << 9  # a flag of classes, which all those have that are written in Python


class CannotBeKept(Exception):
    """A network holds an object whose state is out of reach, such as an iterator."""


@final
class Kept:
    """All that a network holds, so that what changes can be put back.

    Raises:
        CannotBeKept: it holds an object whose state is out of reach.
    """

    def __init__(self, network: nn.Module):
        self.alive: dict[int, Any] = {}  # so that no identity is used twice
        self.restoring: list[Callable[[], None]] = []
        self.kinds: dict[type, tuple[type, list[str]]] = {}
        left: list[Any] = [network]
        while left:
            value = left.pop()
            if id(value) not in self.alive and not isinstance(value, FIXED):
                self.alive[id(value)] = value
                left += self.keep(value)

    def put_back(self) -> None:
        """Puts back what changed."""
        for each in self.restoring:
            each()

    def keep(self, value: Any) -> Iterable[Any]:
        """Keeps one object, and returns those that it holds."""
        if isinstance(value, Tensor):
            return self.tensor(value)
        if isinstance(value, torch.Generator):
            return self.state(value.get_state, value.set_state)
        if isinstance(value, random.Random):
            return self.state(value.getstate, value.setstate)
        if isinstance(value, types.CellType):
            return self.attributes(value, ("cell_contents",))
        if isinstance(value, types.FunctionType):
            held = self.attributes(value, ("__defaults__", "__kwdefaults__"))
            return *held, value.__dict__, *(value.__closure__ or ())
        if isinstance(value, BaseException):  # whose mapping of attributes is made when it is asked for
            own = vars(value) if len(BaseException.__reduce__(value)) > 2 else None
            return *self.attributes(value, ("args", "__traceback__", "__cause__", "__context__"))[:1], own
        if isinstance(value, types.MethodType):
            return value.__func__, value.__self__
        if isinstance(value, BUILT_IN):
            return (getattr(value, "__self__", None),)
        if isinstance(value, weakref.ref):
            return (value(),)
        if isinstance(value, partial):
            return value.func, value.args, value.keywords, value.__dict__
        return () if type(value).__name__ in WITHOUT_STATE else self.object(value)

    def object(self, value: Any) -> Iterable[Any]:
        """Keeps a container, or an object of a class that is written in Python."""
        native, slots = self.kind(type(value))
        held = [*self.attributes(value, slots), *self.named(value)]
        if native in (dict, OrderedDict) or isinstance(value, dict):
            return *held, *chain(*self.mapping(value))
        if native in (list, set, deque):
            return *held, *self.members(value, native)
        if native in (tuple, frozenset):
            return *held, *value
        if native is not object or (type(value) is not object and is_native(type(value))):
            raise CannotBeKept(f"a {native.__module__}.{type(value).__qualname__}")
        return held

    def kind(self, kind: type) -> tuple[type, list[str]]:
        """The class written in C that a class is made of, and the names of its slots."""
        if kind not in self.kinds:
            native = next(each for each in kind.__mro__ if is_native(each))
            members = (vars(each).items() for each in kind.__mro__ if not is_native(each))
            slots = [name for name, slot in chain(*members) if isinstance(slot, types.MemberDescriptorType)]
            self.kinds[kind] = native, slots
        return self.kinds[kind]

    def named(self, value: Any) -> Iterable[Any]:
        """Keeps the attributes of an object; no call changes the notes of convert and the nodes of a graph."""
        if not hasattr(value, "__dict__"):
            return ()
        left_out = NOTES_OF_GRAPHS if isinstance(value, fx.GraphModule) else OF_CONVERSION
        return [each for name, each in self.mapping(vars(value)) if name not in left_out]

    def mapping(self, mapping: dict[Any, Any]) -> list[tuple[Any, Any]]:
        """Keeps the keys, values and order of a mapping."""
        kind: Any = OrderedDict if isinstance(mapping, OrderedDict) else dict
        before = list(kind.items(mapping))

        def put_back() -> None:
            if not same_objects(chain(*kind.items(mapping)), chain(*before)):
                kind.clear(mapping)
                for key, value in before:
                    kind.__setitem__(mapping, key, value)

        self.restoring.append(put_back)
        return before

    def members(self, values: Any, kind: Any) -> list[Any]:
        """Keeps the members of a list, a queue or a set."""
        before = list(values)

        def put_back() -> None:
            if not same_objects(values, before):
                kind.clear(values)
                (kind.update if kind is set else kind.extend)(values, before)

        self.restoring.append(put_back)
        return before

    def attributes(self, value: Any, names: Iterable[str]) -> list[Any]:
        """Keeps attributes that stand in no mapping, where they have values."""
        before = [(name, getattr(value, name)) for name in names if has_value(value, name)]

        def put_back() -> None:
            for name, each in before:
                if not has_value(value, name) or getattr(value, name) is not each:
                    object.__setattr__(value, name, each)

        self.restoring.append(put_back)
        return [each for _, each in before]

    def state(self, read: Callable[[], Any], write: Callable[[Any], Any]) -> Iterable[Any]:
        """Keeps the state of a generator of random numbers."""
        before = read()
        self.restoring.append(lambda: write(before))
        return ()

    def tensor(self, tensor: Tensor) -> Iterable[Any]:
        """Keeps the bits of a tensor, its memory, its gradient, and whether it trains."""
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
            raise CannotBeKept("a tensor that is not dense")
        memory, bits, trains = tensor.data, tensor.detach().clone(), tensor.requires_grad
        gradient = tensor.grad if tensor.is_leaf else None

        def put_back() -> None:
            if any(getattr(tensor, name)() != getattr(memory, name)() for name in ("data_ptr", "size", "stride")):
                tensor.data = memory
            if not same_bits(tensor, bits):
                tensor.data.copy_(bits)
            if tensor.requires_grad != trains:
                tensor.requires_grad_(trains)
            if tensor.is_leaf and tensor.grad is not gradient:
                tensor.grad = gradient

        self.restoring.append(put_back)
        return vars(tensor), gradient


def same_objects(first: Iterable[Any], second: Iterable[Any]) -> bool:
    """Whether two sequences hold the same objects in the same order."""
    return [id(each) for each in first] == [id(each) for each in second]


def has_value(value: Any, name: str) -> bool:
    """Whether an attribute has a value; an empty cell of a closure has none."""
    try:
        getattr(value, name)
    except (AttributeError, ValueError):
        return False
    return True


def is_native(kind: type) -> bool:
    """Whether a class is written in C: its objects may have state that no attribute shows."""
    return not kind.__flags__ & HEAP_TYPE or getattr(vars(kind).get("__new__"), "__self__", None) is kind
