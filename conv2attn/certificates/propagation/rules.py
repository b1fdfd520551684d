"""One rule a function: what it makes of the bounds of what it reads. A function without one is where a bound stops."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional as F

from conv2attn.certificates.propagation.carried import Carried

SPACES = (torch, Tensor, F, torch.special)


@final
@dataclass(frozen=True, eq=False)
class Call:
    """A call of a function of torch, what it returned, and the bounds of each tensor that it was given.

    A tensor is `computed` if it comes from the image: then it may be other numbers for other images.
    """

    function: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    value: Any
    bounds: Callable[[Tensor], Carried]
    computed: Callable[[Tensor], bool]

    def argument(self, place: int, name: str, default: Any = None) -> Any:
        """An argument, given by its place or by its name."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name, default)

    @property
    def tensor(self) -> Tensor:
        """The first argument."""
        given = self.argument(0, "input")
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
RULES: dict[Any, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for all functions and methods of torch with these names."""

    def register(function: Rule) -> Rule:
        for name in names:
            for each in functions_called(name):
                RULES[each] = function
        return function

    return register


def functions_called(name: str) -> Iterator[Any]:
    """What torch, its tensors and torch.nn.functional call by a name; of an attribute, its getter."""
    for space in SPACES:
        found: Any = vars(space).get(name, getattr(space, name, None))
        if hasattr(found, "__get__") and not callable(found):
            yield found.__get__
        elif found is not None:
            yield found


def stored(number: float, dtype: torch.dtype) -> list[float]:
    """What a number may become beside tensors of a dtype: itself, rounded to the dtype, or to what this computes in."""
    kinds = (dtype, torch.promote_types(dtype, torch.float32))
    return [number, *(torch.tensor(number, dtype=kind).item() for kind in kinds)]


def tensors_in(item: Any) -> Iterator[Tensor]:
    """The tensors in nested tuples, lists and mappings."""
    if isinstance(item, Tensor):
        yield item
    elif isinstance(item, Mapping):
        for each in item.values():
            yield from tensors_in(each)
    elif isinstance(item, list | tuple):
        for each in item:
            yield from tensors_in(each)


def replaced(item: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """`item` with `function` of each tensor of floating-point numbers in it."""
    if isinstance(item, Tensor):
        return function(item) if item.is_floating_point() else item
    if isinstance(item, Mapping):
        return {key: replaced(each, function) for key, each in item.items()}
    if type(item) in (list, tuple):
        return type(item)(replaced(each, function) for each in item)
    return item
