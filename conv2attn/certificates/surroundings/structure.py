"""What stands between the compared layers: modules, their order, arguments, attributes, hooks and every stored bit."""

import copy
import functools
import types
from collections import Counter, OrderedDict
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from typing import Any, final

from torch import Tensor, nn

from conv2attn.certificates.readings.finding import Finding, holds, refuted, undecided
from conv2attn.certificates.surroundings.stored import (
    CODE,
    PLAIN,
    attributes_of,
    bindings,
    hooks,
    same_bits,
    state_of,
    worst_place,
)
from conv2attn.models.redirection import CHILD


@final
@dataclass
class Structure:
    """What differs, a sentence each with the module's name first, and what could not be compared."""

    different: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


@final
@dataclass
class Comparison:
    """The comparison of two networks except for the modules `apart`, which are compared otherwise."""

    original: nn.Module
    network: nn.Module
    apart: Set[str]
    found: Structure = field(default_factory=Structure)
    seen: dict[tuple[int, int], tuple[Any, Any]] = field(default_factory=dict)  # holds what it names: no id comes again

    def __post_init__(self) -> None:
        pairs = (self.original, self.network)
        names = [{id(m): name for name, m in side.named_modules()} for side in pairs]
        self.names = {**names[0], **names[1]}

    def run(self) -> Structure:
        """Compares all modules under all their names."""
        first, second = (dict(self.standing(side)) for side in (self.original, self.network))
        for name in first.keys() - second.keys():
            self.found.different.append(f"{name} is only in the first")
        for name in second.keys() - first.keys():
            self.found.different.append(f"{name} is only in the second")
        for name in sorted(first.keys() & second.keys()):
            self.compare_module(name or "the network", first[name], second[name])
        for name in sorted(self.apart):
            self.compare_hooks(
                name or "the network", *(side.get_submodule(name) for side in (self.original, self.network))
            )
        self.found.different.sort()
        return self.found

    def standing(self, side: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        """The modules that are compared here, by name."""
        inside = tuple(f"{name}." if name else "" for name in self.apart)
        for name, module in side.named_modules(remove_duplicate=False):
            if not f"{name}.".startswith(inside) and CHILD not in name.split("."):
                yield name, module

    def compare_module(self, told: str, ours: nn.Module, theirs: nn.Module) -> None:
        """What two modules are in themselves, not what they contain."""
        if type(ours) is not type(theirs):
            self.found.different.append(f"{told}: {type(theirs).__name__} instead of {type(ours).__name__}")
            return
        if ours.extra_repr() != theirs.extra_repr():
            self.found.different.append(f"{told}: ({theirs.extra_repr()}) instead of ({ours.extra_repr()})")
        children = [[key for key in side._modules if key != CHILD] for side in (ours, theirs)]
        if children[0] != children[1] and sorted(children[0]) == sorted(children[1]):
            self.found.different.append(f"{told}: its modules come in another order")
        for kind in ("_parameters", "_buffers"):
            mine, other = getattr(ours, kind), getattr(theirs, kind)
            self.found.different += [f"{told}: {key} is only on one side" for key in sorted(mine.keys() ^ other.keys())]
            for key in mine.keys() & other.keys():
                if not self.same(mine[key], other[key], f"{told}: {key}"):
                    self.found.different.append(f"{told}: {key} differs{worst_place(mine[key], other[key])}")
        attributes = [attributes_of(side) for side in (ours, theirs)]
        for key in sorted(attributes[0].keys() | attributes[1].keys()):
            mine, other = (hooks(side.get(key)) if "hooks" in key else side.get(key) for side in attributes)
            if not self.same(mine, other, f"{told}: {key}"):
                what = "one is in training mode" if key == "training" else f"{key} differs"
                self.found.different.append(f"{told}: {what}")

    def compare_hooks(self, told: str, ours: nn.Module, theirs: nn.Module) -> None:
        """The forward hooks of layers that are compared otherwise; those that compute a weight have done so."""
        for key in ("_forward_pre_hooks", "_forward_hooks"):
            if not self.same(hooks(getattr(ours, key)), hooks(getattr(theirs, key)), f"{told}: {key}"):
                self.found.different.append(f"{told}: {key} differs")

    def same(self, ours: Any, theirs: Any, where: str) -> bool:
        """Whether two attributes are the same; a note where neither answer is known, which counts as the same."""
        if ours is theirs or (id(ours), id(theirs)) in self.seen:
            return True
        if isinstance(ours, nn.Module) and (id(ours) in self.names or id(theirs) in self.names):
            return self.names.get(id(ours)) == self.names.get(id(theirs))
        if type(ours) is not type(theirs):
            return False
        if isinstance(ours, Tensor):
            return same_bits(ours, theirs)
        if isinstance(ours, type) or is_plain(ours):
            return repr(ours) == repr(theirs) and bool(ours == theirs or ours != ours)  # -0.0 is not 0.0, a NaN is one
        if isinstance(ours, CODE) and not isinstance(ours, types.FunctionType):
            return bool(ours == theirs)
        self.seen[id(ours), id(theirs)] = ours, theirs
        if isinstance(ours, nn.Module):
            return self.same_unregistered(ours, theirs, where)
        if isinstance(ours, types.FunctionType):
            text = ours.__code__ is theirs.__code__ and ours.__globals__ is theirs.__globals__
            return text and self.same(bindings(ours), bindings(theirs), where)
        if type(ours) in (dict, OrderedDict):
            return self.same([list(pair) for pair in ours.items()], [list(pair) for pair in theirs.items()], where)
        if type(ours) in (list, tuple):
            return len(ours) == len(theirs) and all(self.same(*pair, where) for pair in zip(ours, theirs, strict=True))
        if type(ours) in (set, frozenset):
            return self.same_members(list(ours), list(theirs), where)
        if isinstance(ours, types.MethodType):
            return ours.__func__ is theirs.__func__ and self.same(ours.__self__, theirs.__self__, where)
        if isinstance(ours, functools.partial):
            return all(self.same(getattr(ours, k), getattr(theirs, k), where) for k in ("func", "args", "keywords"))
        states = state_of(ours), state_of(theirs)
        if None not in states:
            return self.same(*states, where)
        self.found.unknown.append(f"{where} is a {type(ours).__name__}, which cannot be compared")
        return True

    def same_members(self, ours: list[Any], theirs: list[Any], where: str) -> bool:
        """The same of two sets, in any order: 1, 1.0 and True are three things here, and all NaN are one."""
        plain = [Counter((type(each), repr(each)) for each in side if is_plain(each)) for side in (ours, theirs)]
        left = [each for each in theirs if not is_plain(each)]
        for member in ours:
            if not is_plain(member):
                match = next((at for at, other in enumerate(left) if self.would_be_same(member, other, where)), None)
                if match is None:
                    return False
                del left[match]
        return plain[0] == plain[1] and not left

    def would_be_same(self, ours: Any, theirs: Any, where: str) -> bool:
        """The same of two things that need not be, so that nothing is noted where they are not."""
        trial = copy.copy(self)
        trial.found, trial.seen = Structure(), dict(self.seen)
        same = trial.same(ours, theirs, where)
        self.found.unknown += trial.found.unknown if same else []
        return same

    def same_unregistered(self, ours: nn.Module, theirs: nn.Module, where: str) -> bool:
        """The same of two modules that the networks hold without knowing them as theirs, as in a list."""
        inside = Comparison(ours, theirs, frozenset(), seen=self.seen)
        inside.names = {**{key: f"{where}: {name}" for key, name in inside.names.items()}, **self.names}
        found = inside.run()
        self.found.unknown += [f"{where}: {line}" for line in found.unknown]
        return not found.different


def is_plain(thing: Any) -> bool:
    """Whether something is told whole by its type and `repr`."""
    return isinstance(thing, PLAIN) and not isinstance(thing, type) and not hasattr(thing, "__dict__")


def compare_structure(original: nn.Module, network: nn.Module, apart: Set[str]) -> list[Finding]:
    """The findings on all that stands between the layers `apart`."""
    found = Comparison(original, network, apart).run()
    if found.different:
        return [refuted("structure", "C2A405", line) for line in found.different]
    return [undecided("structure", "C2A405", line) for line in found.unknown] or [holds("structure")]
