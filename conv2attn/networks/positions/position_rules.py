"""Attention by position, and the rules that read it off the parameters of a layer.

A rule goes by the full name of the class that defines a module's forward, so that no library need be imported.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, final

import torch
from torch import Tensor, nn

from conv2attn.arguments import foreign_code
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.theory.basis import AttentionGrid, Sides

PositionRule = TypeVar("PositionRule", bound=Callable[..., Any])
LIBRARIES = {"torch", "timm", "torchvision", "transformers"}
"""Packages whose modules the rules know."""
SCORE_ROUNDOFF = 2.0**-53
"""Unit roundoff of float64, in which scores are computed."""


@final
@dataclass(frozen=True, eq=False)
class PositionAttention:
    """Attention of the heads of one layer by position alone: the softmax of `scores`.

    Args:
        scores: (heads, queries, keys + extra), in float64; the queries are pixels.
        grid: the pixels.
        dtype: of the parameters.
        how: the source of the scores, and the terms held at zero.
        uncertainty: bound on the rounding error of a score in float64.
        notes: remarks for reports.
        extra: keys that are no pixels (class tokens, registers), the last columns.
    Raises:
        UsageError: the scores are not those of the grid (C2A503).
    """

    scores: Tensor
    grid: AttentionGrid
    dtype: torch.dtype
    how: str
    uncertainty: float = 0.0
    notes: tuple[str, ...] = ()
    extra: int = 0

    def __post_init__(self) -> None:
        queries, keys = self.grid.shape
        if self.scores.shape[1:] != (queries, keys + self.extra):
            actual, expected = tuple(self.scores.shape[1:]), (queries, keys + self.extra)
            raise UsageError(
                "C2A503",
                f"scores of {actual} (queries, keys) are not those of a grid with {expected}",
                "Pass the --grid that the scores are of.",
            )

    @property
    def attention(self) -> Tensor:
        """The probabilities, (heads, queries, keys + extra), in float64."""
        return torch.softmax(self.scores, -1)


@final
@dataclass(frozen=True)
class Unread:
    """A layer whose attention was not determined, and the reason."""

    reason: str


def leading_note(tokens: int) -> tuple[str, ...]:
    """Note on leading tokens that are no pixels, if there are any."""
    return (f"leading tokens, of whose keys no target asks anything: {tokens}",) if tokens else ()


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


def check_library_code(modules: Iterable[nn.Module], package: str = "torch") -> None:
    """Refuses modules that compute something else than the code of known libraries, or of the package of their rule.

    Raises:
        UnsupportedError: one has hooks, functions of its own, or those of a subclass from elsewhere (C2A110).
    """
    for module in modules:
        basic = isinstance(module, nn.Linear | nn.LayerNorm | nn.Embedding)
        if reason := foreign_code(module, LIBRARIES if basic else {*LIBRARIES, package}):
            raise UnsupportedError(
                "C2A110",
                f"{type(module).__name__} {reason}, so that its parameters do not tell its attention",
                "Pass --inputs, so that its attention is captured as it runs.",
            )


def is_kind(module: nn.Module, *kinds: str) -> bool:
    """Whether the kind of `module` ends in one of `kinds`, such as `convit.GPSA`."""
    return rule_for(module, dict.fromkeys(kinds, True)) is not None


def rule_for(module: nn.Module, rules: dict[str, Any]) -> Any:
    """The rule under the longest ending of the kind of `module` that has one, or None."""
    parts = forward_kind(module).split(".")
    return next((rules[key] for start in range(len(parts)) if (key := ".".join(parts[start:])) in rules), None)


def rule_decorator(rules: dict[str, Any]) -> Callable[..., Callable[[PositionRule], PositionRule]]:
    """A decorator that enters a rule into `rules` under the kinds that it reads."""

    def decorator(*kinds: str) -> Callable[[PositionRule], PositionRule]:
        def enter(rule: PositionRule) -> PositionRule:
            rules.update(dict.fromkeys(kinds, rule))
            return rule

        return enter

    return decorator


ENCODERS: dict[str, Any] = {}
"""Rules for whole encoders: the first attention layer, and its attention by absolute position."""
RELATIVE: dict[str, Any] = {}
"""Rules for layers: attention by a term of relative position, with `q . k` held at zero."""
first_layer = rule_decorator(ENCODERS)
relative = rule_decorator(RELATIVE)
First = tuple[nn.Module, PositionAttention | Unread]
"""The first attention layer of an encoder, and its attention by position."""


def windows_note(sides: Sequence[int] | None = None, placed: bool = False) -> str:
    """The note on a layer that attends in windows, with their sides if they are known."""
    of_sides = f" of {'x'.join(map(str, sides))}" if sides else ""
    where = (
        "measured where its windows stand in the image; check-span judges one window"
        if placed
        else "judged inside one, and at its borders, beyond which no head reads"
    )
    return f"in windows{of_sides}: {where}"
