"""Where a module stands in its network, and of what kind it is: by name, so that no library need be imported."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, final

from torch import nn

from conv2attn.basis import Sides

Rule = TypeVar("Rule", bound=Callable[..., Any])


@final
@dataclass(frozen=True, eq=False)
class Place:
    """A module, its name, what holds it (innermost first), and the sides of the grid that the user gave, if any."""

    name: str
    module: Any
    holders: tuple[nn.Module, ...] = ()
    grid: Sides | None = None

    def held(self, attribute: str) -> Iterator[Any]:
        """The values of `attribute` in the module and its holders, where they have one."""
        values = (getattr(module, attribute, None) for module in (self.module, *self.holders))
        return (value for value in values if value is not None)


def places(network: nn.Module, grid: Sides | None) -> Iterator[Place]:
    """Every module of `network`, in its order."""
    modules = dict(network.named_modules())
    for name, module in modules.items():
        parts = name.split(".") if name else []
        holders = [modules[".".join(parts[:count])] for count in reversed(range(len(parts)))]
        yield Place(name, module, tuple(holders), grid)


def kind(module: nn.Module) -> str:
    """The full name of the class whose forward runs; a subclass that has a forward of its own is another kind."""
    if "forward" in vars(module):
        return "a forward of its own"
    owner = next(each for each in type(module).__mro__ if "forward" in vars(each))
    return f"{owner.__module__}.{owner.__qualname__}"


def is_of(module: nn.Module, *kinds: str) -> bool:
    """Whether the kind of `module` ends in one of `kinds`, such as `convit.GPSA`."""
    return rule_for(module, dict.fromkeys(kinds, True)) is not None


def rule_for(module: nn.Module, rules: dict[str, Any]) -> Any:
    """The rule under the longest ending of the kind of `module` that has one, or None."""
    parts = kind(module).split(".")
    return next((rules[key] for start in range(len(parts)) if (key := ".".join(parts[start:])) in rules), None)


def registering(rules: dict[str, Any]) -> Callable[..., Callable[[Rule], Rule]]:
    """A decorator that enters a rule into `rules` under the kinds that it reads."""

    def reads(*kinds: str) -> Callable[[Rule], Rule]:
        def enter(rule: Rule) -> Rule:
            rules.update(dict.fromkeys(kinds, rule))
            return rule

        return enter

    return reads
