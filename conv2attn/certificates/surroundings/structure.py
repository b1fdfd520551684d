"""What stands between the compared layers: modules, their order, arguments, attributes, hooks and every stored bit."""

from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from typing import final

from torch import nn

from conv2attn.certificates.readings.finding import Finding, holds, refuted, undecided
from conv2attn.certificates.surroundings.stored import (
    FLAGS,
    added_to,
    attributes_of,
    flagged_hooks,
    hooks,
    worst_place,
)
from conv2attn.certificates.surroundings.values import Values
from conv2attn.models.conversion.redirection import CHILD


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

    def __post_init__(self) -> None:
        pairs = (self.original, self.network)
        names = [{id(m): name for name, m in side.named_modules() if self.is_known(name)} for side in pairs]
        self.values = Values({**names[0], **names[1]}, same_unregistered, self.found.unknown)

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
            layers = [side.get_submodule(name) for side in (self.original, self.network)]
            self.compare_hooks(name or "the network", *layers)
            self.compare_added(name or "the network", *layers)
        self.found.different.sort()
        return self.found

    def is_known(self, name: str) -> bool:
        """Whether a module is compared by its name, and not as a part of what is compared otherwise."""
        return name in self.apart or not name.startswith(self.inside)

    @property
    def inside(self) -> tuple[str, ...]:
        """How the names of all parts of the modules apart begin."""
        return tuple(f"{name}." if name else "" for name in self.apart)

    def standing(self, side: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        """The modules that are compared here, by name."""
        for name, module in side.named_modules(remove_duplicate=False):
            if not f"{name}.".startswith(self.inside) and CHILD not in name.split("."):
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
                if not self.values.same(mine[key], other[key], f"{told}: {key}"):
                    self.found.different.append(f"{told}: {key} differs{worst_place(mine[key], other[key])}")
        attributes = [attributes_of(side) for side in (ours, theirs)]
        for key in sorted(attributes[0].keys() | attributes[1].keys()):
            mine, other = (hooks(side.get(key)) if "hooks" in key else side.get(key) for side in attributes)
            if not self.values.same(mine, other, f"{told}: {key}"):
                what = "one is in training mode" if key == "training" else f"{key} differs"
                self.found.different.append(f"{told}: {what}")

    def compare_hooks(self, told: str, ours: nn.Module, theirs: nn.Module) -> None:
        """The forward hooks of layers that are compared otherwise; those that compute a weight have done so."""
        for key in FLAGS:
            if not self.values.same(flagged_hooks(ours, key), flagged_hooks(theirs, key), f"{told}: {key}"):
                self.found.different.append(f"{told}: {key} differs")

    def compare_added(self, told: str, ours: nn.Module, theirs: nn.Module) -> None:
        """What was added to both of two layers that are compared otherwise: hooks and the networks may read it."""
        first, second = added_to(ours), added_to(theirs)
        for key in sorted(first.keys() & second.keys()):
            if not self.values.same(first[key], second[key], f"{told}: {key}"):
                self.found.different.append(f"{told}: {key} differs")


def same_unregistered(values: Values, ours: nn.Module, theirs: nn.Module, where: str) -> bool:
    """The same of two modules that the networks hold without knowing them as theirs, as in a list."""
    inside = Comparison(ours, theirs, frozenset())
    names = {**{key: f"{where}: {name}" for key, name in inside.values.names.items()}, **values.names}
    inside.values = Values(names, same_unregistered, inside.found.unknown, values.seen)
    found = inside.run()
    values.unknown += [f"{where}: {line}" for line in found.unknown]
    return not found.different


def compare_structure(original: nn.Module, network: nn.Module, apart: Set[str]) -> list[Finding]:
    """The findings on all that stands between the layers `apart`."""
    found = Comparison(original, network, apart).run()
    if found.different:
        return [refuted("structure", "C2A405", line) for line in found.different]
    return [undecided("structure", "C2A405", line) for line in found.unknown] or [holds("structure")]
