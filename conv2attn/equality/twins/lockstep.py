"""Twins: two networks that are the same objects of the same code, except for their layers.

One walk through both in lockstep builds a bijection of their objects: each object of one corresponds to exactly one of
the other. Convolutions and attention are compared elsewhere, as values of `Basis`. An object that cannot be compared is
a difference.

    conv1.forward.closure: int 2 / int 3        the closure of a replaced forward holds another number
    norm.weight: numbers of a tensor            one number of a parameter is another
    (the network): names or order of modules    a module was added
"""

import copyreg
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, fx, nn

from conv2attn.equality.twins.bits import layout, same_bits
from conv2attn.equality.twins.walked_modules import (
    HOOKS,
    PRE_HOOKS,
    attending,
    hooks_of,
    hooks_on_all_modules,
    is_layer,
    modules_outside_layers,
    paired_layers,
    plain_attributes,
    trained,
)
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.networks.conversion.redirection import CHILD, AttendedForward, AttendingCalls
from conv2attn.networks.copies import LOCKS, SHARED, in_training

ATOMS = (
    int, str, bytes, bool, type(None), type(Ellipsis), type(NotImplemented), torch.Size, torch.dtype,
    torch.device, torch.layout, torch.memory_format, types.CodeType,
)  # fmt: skip
TYPES = (type, types.GenericAlias, types.UnionType)
BUILT_IN = (
    types.BuiltinFunctionType, types.MethodWrapperType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.GetSetDescriptorType, types.ClassMethodDescriptorType,
)  # fmt: skip
UNSET = object()
"""In place of the value of a context variable that has none."""


class Different(Exception):
    """Raised for two objects that do not correspond."""


@final
class Lockstep:
    """One walk through two networks, or through what they return.

    Args:
        first, second: networks, or any other values; modules inside such values are compared by class alone.
        numbers: whether tensors are also compared by bits, strides and devices, not only by shape and dtype.
        copied: whether the second is a copy of the first.

    Attributes:
        difference: the first difference, as `path: reason`; empty for twins.
        layers: the pairs of layers by name, each once; also if the networks are not twins.
        calls: by name of the owner, the attention that replaces functional convolutions in the first, if any, and in
            the second.
    """

    def __init__(self, first: Any, second: Any, *, numbers: bool = True, copied: bool = False):
        self.networks, self.numbers, self.copied = (first, second), numbers, copied
        self.there, self.back = dict[int, Any](), dict[int, Any]()
        self.alive: list[Any] = []  # so that no id is reused
        self.storages: tuple[dict[int, int], dict[int, int]] = {}, {}
        self.path: list[str] = []
        self.layers, self.calls = list[tuple[str, nn.Module, nn.Module]](), dict[str, tuple[Any, AttendingCalls]]()
        if not isinstance(first, nn.Module):
            self.difference = self.first_difference(self.same, first, second)
            return
        ours, theirs = (modules_outside_layers(side) for side in (first, second))
        self.layers = list(dict.fromkeys(paired_layers(ours, theirs)))
        self.calls = {
            name: (attending(ours.get(name)), calls)
            for name, module in theirs.items()
            if (calls := attending(module)) is not None
        }
        self.difference = self.first_difference(self.modules, ours, theirs)

    def modules(self, ours: Mapping[str, nn.Module], theirs: Mapping[str, nn.Module]) -> None:
        """Compares the modules of two networks, by name."""
        if hooks_on_all_modules():
            raise Different("hooks act on all modules")
        if list(ours) != list(theirs):
            odd = [name for name in {**ours, **theirs} if (name in ours) != (name in theirs)]
            raise Different("names or order of modules" + (f" ({odd[0]} is in one only)" if odd else ""))
        # All modules are paired before any is entered, since an attribute may refer to a later module.
        for name, module in ours.items():
            with self.at(name or "(the network)"):
                self.note(module, theirs[name])
        for name in {id(module): name for name, module in reversed([*ours.items()])}.values():
            with self.at(name or "(the network)"):
                self.module(ours[name], theirs[name])

    def first_difference(self, compare: Callable[[Any, Any], None], first: Any, second: Any) -> str:
        """The first difference that a comparison raises, in words; empty if there is none."""
        try:
            compare(first, second)
        except Different as error:
            return f"{'.'.join(self.path)}: {error}".lstrip(": ")
        except Exception as error:  # the code of an object may raise anything
            return f"{'.'.join(self.path)}: cannot be compared ({type(error).__name__}: {str(error)[:60]})"
        return ""

    @contextmanager
    def at(self, place: object) -> Iterator[None]:
        """Adds a step to the path, which is kept when a difference is raised."""
        self.path.append(str(place))
        yield
        self.path.pop()

    def note(self, first: Any, second: Any) -> bool:
        """Pairs two objects; False if they are already paired.

        Raises:
            Different: one of them is paired with a third.
        """
        # In both directions: if one object corresponded to two, code that writes to one of them would distinguish the
        # networks.
        if id(first) in self.there or id(second) in self.back:
            if self.there.get(id(first)) is second and self.back.get(id(second)) is first:
                return False
            raise Different(f"a {type(first).__name__} is shared in one network and not in the other")
        self.there[id(first)], self.back[id(second)] = second, first
        self.alive += [first, second]
        return True

    def module(self, first: nn.Module, second: nn.Module) -> None:
        """Compares two modules of the same name, which are paired."""
        if is_layer(first) and is_layer(second):
            self.layer(first, second)
        else:
            self.contents(first, second)

    def layer(self, first: nn.Module, second: nn.Module) -> None:
        """Compares two layers apart from their maps: mode, hooks, ties, and the code that computes their weights."""
        if in_training(first) != in_training(second):
            raise Different(f"training is {in_training(second)}, not {in_training(first)}")
        self.hooks(first, second)
        if first is self.networks[0]:  # a network that is a layer: no code can inspect it
            return
        computing = [module._modules.get("parametrizations") for module in (first, second)]
        with self.at("parametrizations"):
            self.same(*computing)
        for name in first._parameters.keys() & second._parameters.keys():
            ours, theirs = first._parameters[name], second._parameters[name]
            if ours is not None and theirs is not None:
                with self.at(name):
                    self.tensor(ours, theirs, bits=name not in ("weight", "bias"))
        if trained(first) != trained(second):
            raise Different("requires_grad of the layer")
        with self.at("forward"):
            self.same(vars(first).get("forward"), vars(second).get("forward"))
        if isinstance(first, MultiHeadSelfAttention):
            return
        # Other attributes on a layer may be read by code around it, so they are compared like any attribute.
        computed = {"name", "training", "forward", "weight", "bias"}
        for key, value in vars(first).items():
            if not key.startswith("_") and key in vars(second) and key not in computed:
                with self.at(key):
                    self.same(value, vars(second)[key])

    def hooks(self, first: nn.Module, second: nn.Module) -> None:
        """Compares the hooks of two modules, in their order."""
        for kinds in (HOOKS, PRE_HOOKS):
            ours, theirs = (hooks_of(module, kinds) for module in (first, second))
            with self.at(kinds[0]):
                self.parts(ours, theirs)

    def same(self, first: Any, second: Any) -> None:
        """Compares two values as code reads them.

        Raises:
            Different: they are not the same, or cannot be compared.
        """
        kind = type(first)
        if isinstance(first, nn.Module) and id(first) in self.there:
            if self.there[id(first)] is not second:
                raise Different(f"another {kind.__name__}")
        elif kind is not type(second) and not (
            isinstance(first, fx.GraphModule) and isinstance(second, fx.GraphModule)
        ):
            raise Different(f"a {type(second).__name__}, not a {kind.__name__}")
        elif kind in (float, complex):
            # As bits, NaN equals itself and -0.0 differs from 0.0.
            if np.complex128(first).tobytes() != np.complex128(second).tobytes():
                raise Different(f"{second}, not {first}")
        elif kind is range:  # of equal ranges the ends may differ, which code may read
            self.parts((first.start, first.stop, first.step), (second.start, second.stop, second.step))
        elif kind in ATOMS or isinstance(first, TYPES) or kind.__module__ == "typing":
            if not (first is second or first == second):
                raise Different(f"{str(second)[:40]}, not {str(first)[:40]}")
        elif kind in BUILT_IN:
            self.built_in(first, second)
        elif kind is tuple:
            self.parts(first, second)
        elif kind is types.MethodType:
            self.parts((first.__func__, first.__self__), (second.__func__, second.__self__))
        elif kind is weakref.ref:
            self.same(first(), second())
        elif isinstance(first, Tensor):
            self.tensor(first, second)
        elif self.note(first, second):
            self.contents(first, second)

    def parts(self, first: Any, second: Any) -> None:
        """Compares two sequences."""
        if len(first) != len(second):
            raise Different(f"{len(second)} parts, not {len(first)}")
        for number, (mine, other) in enumerate(zip(first, second, strict=True)):
            with self.at(number):
                self.same(mine, other)

    def built_in(self, first: Any, second: Any) -> None:
        """Compares two functions of torch or Python; a bound one also by its object."""
        owner = getattr(first, "__self__", None)
        if owner is None or isinstance(owner, (types.ModuleType, type)):
            if first is not second:
                raise Different(f"the function {second.__name__}, not {first.__name__}")
        elif first.__name__ != second.__name__:
            raise Different(f"the method {second.__name__}, not {first.__name__}")
        else:
            self.same(owner, second.__self__)

    def tensor(self, first: Tensor, second: Tensor, *, bits: bool = True) -> None:
        """Compares two tensors as visible to code, and the sharing of their memory."""
        if not self.note(first, second):
            return
        if type(first) is not type(second):
            raise Different(f"a {type(second).__name__}, not a {type(first).__name__}")
        if first.layout != torch.strided or first.is_quantized or first.is_nested:
            if first is second:
                return
            raise Different("a tensor that is not dense")
        attributes_compared = ("shape", "dtype", "requires_grad", "is_leaf") if bits else ("dtype", "requires_grad")
        for key in (*attributes_compared, "device") if self.numbers else attributes_compared:
            if getattr(first, key) != getattr(second, key):
                raise Different(f"{key} of a tensor is {getattr(second, key)}, not {getattr(first, key)}")
        if bits and self.numbers and layout(first) != layout(second):
            raise Different("strides of a tensor")
        if bits and self.numbers and not same_bits(first, second):
            raise Different("numbers of a tensor")
        # Shared memory decides which other tensors an in-place write changes.
        ours, theirs = (each.untyped_storage()._cdata for each in (first, second))
        partners = self.storages[0].setdefault(ours, theirs), self.storages[1].setdefault(theirs, ours)
        if partners != (theirs, ours):
            raise Different("memory is shared in one network and not in the other")
        self.state(first.__dict__, second.__dict__)

    def contents(self, first: Any, second: Any) -> None:
        """Compares the contents of two objects."""
        kind = type(first)
        if isinstance(first, torch.jit.ScriptModule):
            self.scripted(first, second)
        elif isinstance(first, nn.Module):
            if isinstance(self.networks[0], nn.Module):
                self.attributes(first, second)
        elif kind is types.FunctionType:
            if first.__globals__ is not second.__globals__ or first.__code__ != second.__code__:
                raise Different(f"the code of {second.__qualname__}, not of {first.__qualname__}")
            for part in ("__defaults__", "__kwdefaults__", "__dict__"):
                with self.at(part):
                    self.same(getattr(first, part), getattr(second, part))
            cells = ([cell.cell_contents for cell in side.__closure__ or ()] for side in (first, second))
            with self.at("closure"):
                self.parts(*cells)
        elif kind is list:
            self.parts(first, second)
        elif kind in (dict, OrderedDict):
            self.state(first, second)
        elif kind in (set, frozenset):
            words = all(isinstance(each, str) for each in (*first, *second))  # strings are ordered by their hashes
            self.parts(sorted(first) if words else [*first], sorted(second) if words else [*second])
        elif kind is torch.Generator:
            if not torch.equal(first.get_state(), second.get_state()):
                raise Different("the state of a generator")
        elif kind is ContextVar:
            self.parts(*((side.name, side.get(UNSET), default_of(side)) for side in (first, second)))
        elif kind not in LOCKS and not (first is second and isinstance(first, SHARED)):
            # A copy of an array is contiguous, so strides are compared only between two originals.
            if isinstance(first, np.ndarray) and not self.copied and first.strides != second.strides:
                raise Different("strides of an array")
            self.rebuilt(first, second)

    def state(self, first: Mapping[Any, Any], second: Mapping[Any, Any]) -> None:
        """Compares two mappings, keys and order included."""
        if len(first) != len(second):
            odd = [key for key in {**first, **second} if (key in first) != (key in second)]
            raise Different(f"{odd[0] if odd else 'an entry'} is in one network only")
        for (key, mine), (other_key, other) in zip(first.items(), second.items(), strict=True):
            with self.at(key if isinstance(key, str) else "[]"):
                self.same(key, other_key)
                self.same(mine, other)

    def attributes(self, first: nn.Module, second: nn.Module) -> None:
        """Compares everything in two modules: attributes, children, hooks, a replaced forward."""
        if isinstance(first, fx.GraphModule) and isinstance(second, fx.GraphModule):
            self.graph(first, second)
        elif type(first) is not type(second):
            raise Different(f"a {type(second).__name__}, not a {type(first).__name__}")
        self.hooks(first, second)
        # A conversion adds one child to a module that calls convolutions as functions, and wraps its forward. These are
        # compared as values; everything else must be unchanged.
        added = CHILD in second._modules and CHILD not in first._modules
        ours, theirs = first._modules, {k: v for k, v in second._modules.items() if not (added and k == CHILD)}
        if isinstance(first, AttendingCalls):
            ours, theirs = {}, {}  # attention that replaces functions is compared as values
        with self.at("_modules"):
            self.state(ours, theirs)
        ours, theirs = (plain_attributes(module) for module in (first, second))
        if added:
            forward = theirs.get("forward")
            if not isinstance(forward, AttendedForward) or forward.owner is not second:
                raise Different("the forward of another module")
            inner = {"forward": forward.replaced} if forward.replaced is not None else {}
            theirs = {key: inner.get(key, value) for key, value in theirs.items() if key != "forward" or inner}
        if ours.keys() == theirs.keys():
            theirs = {key: theirs[key] for key in ours}  # copies of recurrent layers have another order
        self.state(ours, theirs)

    def graph(self, first: fx.GraphModule, second: fx.GraphModule) -> None:
        """Compares the code of two networks that torch.fx traced."""
        nodes = [list(side.graph.nodes) for side in (first, second)]
        if first.code != second.code or len(nodes[0]) != len(nodes[1]):
            raise Different("the code of a network that torch.fx traced")
        for mine, other in zip(*nodes, strict=True):
            if mine.op != other.op or not (mine.target is other.target or mine.target == other.target):
                raise Different(f"{mine} of a network that torch.fx traced")

    def scripted(self, first: torch.jit.ScriptModule, second: torch.jit.ScriptModule) -> None:
        """Compares two modules of TorchScript: for a copy, which has the original's code, only the numbers."""
        if first is not second and not self.copied:
            raise Different("code of TorchScript, which is not read")
        ours, theirs = ({**dict(side.named_parameters()), **dict(side.named_buffers())} for side in (first, second))
        for name, tensor in ours.items():  # in a copy parameters are plain tensors
            if name not in theirs or not same_bits(tensor, theirs[name]):
                raise Different(f"numbers of {name}")

    def rebuilt(self, first: Any, second: Any) -> None:
        """Compares two objects by their attributes, and by the state from which a copy is rebuilt.

        That state alone is not enough: a class may omit from it attributes that its methods read.
        """
        kind = type(first)
        if first is not second and not kind.__module__.startswith("torch"):
            own, others = ({key: getattr(side, key) for key in own_attributes(side)} for side in (first, second))
            self.alive += [own, others]
            self.state(own, others)
        rule = copyreg.dispatch_table.get(kind)
        # Pickle's state may hold what no attribute does, such as memory outside Python.
        ours, theirs = (rule(each) if rule else each.__reduce_ex__(4) for each in (first, second))
        if isinstance(ours, str):
            if first is not second:
                raise Different(f"another {kind.__name__}")
            return
        self.alive += [ours, theirs]
        if len(ours) != len(theirs):
            raise Different(f"the state of a {kind.__name__}")
        for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            if number in (3, 4) and mine is not None:
                mine, other = list(mine), list(other)
            with self.at(kind.__name__):
                self.same(mine, other)


def default_of(variable: ContextVar[Any]) -> Any:
    """What a context variable gives in a new context: its default, if it has one."""
    try:
        return Context().run(variable.get)
    except LookupError:
        return UNSET


def own_attributes(thing: object) -> Iterator[str]:
    """The names of an object's attributes and filled slots; empty for Python's own objects and foreign memory."""
    yield from getattr(thing, "__dict__", ())
    slots = (vars(base).get("__slots__", ()) for base in type(thing).__mro__)
    for names in slots:
        for name in (names,) if isinstance(names, str) else names:
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                yield name
