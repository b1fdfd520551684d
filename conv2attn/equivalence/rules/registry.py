"""The table of rules, by the name of the ATen operator. An operator without one is where a bound stops."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from conv2attn.equivalence.domain import Carried


@final
@dataclass(frozen=True, eq=False)
class Call:
    """A call of an ATen operator, what it returned, and the bounds of each tensor that it was given.

    `arguments` are those of its schema, by name, with their defaults. A tensor is `computed` if it comes from the
    image: then it may be other numbers for other images.
    """

    function: Any
    arguments: Mapping[str, Any]
    value: Any
    bounds: Callable[[Tensor], Carried]
    computed: Callable[[Tensor], bool]

    def argument(self, name: str, default: Any = None) -> Any:
        """An argument by its name in the schema; `default` where this overload has none."""
        return self.arguments.get(name, default)

    @property
    def name(self) -> str:
        """The name of the operator."""
        return name_of(self.function)

    @property
    def first(self) -> Any:
        """The first argument."""
        return next(iter(self.arguments.values()))

    @property
    def tensor(self) -> Tensor:
        """The first argument, a tensor."""
        given = self.first
        assert isinstance(given, Tensor)
        return given

    @property
    def given(self) -> Carried:
        """The bounds of the first argument."""
        return self.bounds(self.tensor)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of what was returned."""
        return (self.value if isinstance(self.value, Tensor) else self.value[0]).dtype

    def axes(self, chosen: Any) -> tuple[int, ...]:
        """Axes of the first argument, counted from the front; all of them for None or an empty list."""
        count = self.tensor.ndim
        named = [] if chosen is None else chosen if isinstance(chosen, list | tuple) else [chosen]
        listed = named or range(count)
        return tuple(axis % count for axis in listed)

    def per_channel(self, numbers: Tensor) -> Tensor:
        """A number for each channel of the first argument, or one for all of them."""
        return numbers.reshape([-1 if axis == 1 else 1 for axis in range(self.tensor.ndim)])


Rule = Callable[[Call], Carried | list[Carried]]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for the operators with these names and for their forms in place."""

    def register(function: Rule) -> Rule:
        RULES.update({each: function for name in names for each in (name, f"{name}_")})
        return function

    return register


def name_of(function: Any) -> str:
    """The name of an operator without its namespace and overload."""
    schema = getattr(function, "_schema", None)
    return str(schema.name).partition("::")[2] if schema is not None else str(getattr(function, "__name__", function))


def stored(number: float, dtype: torch.dtype) -> list[float]:
    """The values of a number beside tensors of a dtype: itself, or rounded to the dtype or to its accumulator."""
    kinds = (dtype, torch.promote_types(dtype, torch.float32))
    return [number, *(torch.tensor(number, dtype=kind).item() for kind in kinds)]


def tensors_in(item: Any) -> Iterator[Tensor]:
    """The tensors in nested tuples, lists and mappings."""
    return (each for each in tree_leaves(item) if isinstance(each, Tensor))


def replaced(item: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """`item` with `function` of each tensor of floating-point numbers in it."""
    return tree_map_only(Tensor, lambda each: function(each) if each.is_floating_point() else each, item)
