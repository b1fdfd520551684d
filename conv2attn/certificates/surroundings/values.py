"""Whether what two networks hold beside parameters and buffers is the same: numbers, functions, and all in objects."""

import functools
import types
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

from torch import Tensor, nn

from conv2attn.certificates.computed.returned import is_dense
from conv2attn.certificates.surroundings.stored import CODE, PLAIN, bindings, same_bits, state_of


@final
@dataclass
class Values:
    """The comparison of attributes, and what of them is `unknown`.

    `names` are those of the modules that either network knows as its own, by their ids, and `unregistered` compares two
    that none does. `seen` are the pairs met before, by their ids; it holds what it names, so that no id comes again.
    """

    names: Mapping[int, str]
    unregistered: Callable[["Values", nn.Module, nn.Module, str], bool]
    unknown: list[str]
    seen: dict[tuple[int, int], tuple[Any, Any]] = field(default_factory=dict)

    def same(self, ours: Any, theirs: Any, where: str) -> bool:
        """Whether two attributes are the same; a note where neither answer is known, which counts as the same."""
        if ours is theirs or (id(ours), id(theirs)) in self.seen:
            return True
        if isinstance(ours, nn.Module) and (id(ours) in self.names or id(theirs) in self.names):
            return self.names.get(id(ours)) == self.names.get(id(theirs))
        if type(ours) is not type(theirs):
            return False
        if isinstance(ours, Tensor):
            if is_dense(ours) and is_dense(theirs):
                return same_bits(ours, theirs)
            self.unknown.append(f"{where} is a sparse, quantised or nested tensor, which cannot be compared")
            return True
        if isinstance(ours, type) or is_plain(ours):
            return repr(ours) == repr(theirs) and bool(ours == theirs or ours != ours)  # -0.0 is not 0.0, a NaN is one
        if isinstance(ours, CODE) and not isinstance(ours, types.FunctionType):
            return bool(ours == theirs)
        self.seen[id(ours), id(theirs)] = ours, theirs
        if isinstance(ours, nn.Module):
            return self.unregistered(self, ours, theirs, where)
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
        self.unknown.append(f"{where} is a {type(ours).__name__}, which cannot be compared")
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
        trial = Values(self.names, self.unregistered, [], dict(self.seen))
        same = trial.same(ours, theirs, where)
        self.unknown += trial.unknown if same else []
        return same


def is_plain(thing: Any) -> bool:
    """Whether something is told whole by its type and `repr`."""
    return isinstance(thing, PLAIN) and not isinstance(thing, type) and not hasattr(thing, "__dict__")
