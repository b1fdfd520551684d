"""Modules with their names, containers and kinds; kinds are names, so that no library need be imported."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, final

from torch import nn

from conv2attn.basis import Sides

Rule = TypeVar("Rule", bound=Callable[..., Any])


@final
@dataclass(frozen=True, eq=False)
class ModulePlace:
    """A module, its name, the modules that contain it (innermost first), and the user's grid, if any."""

    name: str
    module: Any
    holders: tuple[nn.Module, ...] = ()
    grid: Sides | None = None

    def attribute_values(self, attribute: str) -> Iterator[Any]:
        """The values of `attribute` in the module and its holders that are not None."""
        values = (getattr(module, attribute, None) for module in (self.module, *self.holders))
        return (value for value in values if value is not None)


def module_places(network: nn.Module, grid: Sides | None) -> Iterator[ModulePlace]:
    """Every module of `network`, in the order of `named_modules`."""
    modules = dict(network.named_modules())
    for name, module in modules.items():
        parts = name.split(".") if name else []
        holders = [modules[".".join(parts[:count])] for count in reversed(range(len(parts)))]
        yield ModulePlace(name, module, tuple(holders), grid)


def forward_kind(module: nn.Module) -> str:
    """The full name of the class that defines the module's forward; a forward of the object itself has no class."""
    if "forward" in vars(module):
        return "a forward of its own"
    owner = next(each for each in type(module).__mro__ if "forward" in vars(each))
    return f"{owner.__module__}.{owner.__qualname__}"


def is_kind(module: nn.Module, *kinds: str) -> bool:
    """Whether the kind of `module` ends in one of `kinds`, such as `convit.GPSA`."""
    return rule_for(module, dict.fromkeys(kinds, True)) is not None


def rule_for(module: nn.Module, rules: dict[str, Any]) -> Any:
    """The rule under the longest ending of the kind of `module` that has one, or None."""
    parts = forward_kind(module).split(".")
    return next((rules[key] for start in range(len(parts)) if (key := ".".join(parts[start:])) in rules), None)


def rule_decorator(rules: dict[str, Any]) -> Callable[..., Callable[[Rule], Rule]]:
    """A decorator that enters a rule into `rules` under the kinds that it reads."""

    def decorator(*kinds: str) -> Callable[[Rule], Rule]:
        def enter(rule: Rule) -> Rule:
            rules.update(dict.fromkeys(kinds, rule))
            return rule

        return enter

    return decorator
