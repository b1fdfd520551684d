"""One operator of a network beside its shadows, and the table of rules by its name."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from conv2attn.equality.worlds.shadows import COPIES, MASKED, Shadow, is_number, is_shadow, scale_of
from conv2attn.torch_internals import tree_leaves

if TYPE_CHECKING:
    from conv2attn.equality.worlds.watch import Watch

Rule = Callable[["Step"], Any]
RULES: dict[str, Rule] = {}
"""By the operator's name. A rule that returns NotImplemented leaves the operator to the next general rule."""
# Numbers below SMALL count as epsilons: in some worlds they are multiplied by 2^17, below TINY by 2^31.
SMALL, TINY = 2e-4, 3e-8


def shadow_rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers the rule of some operators."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


@dataclass(frozen=True)
class Step:
    """An operator with shadows in place of tensors.

    `bound` has all arguments by name, `out` is what the network computed, `plain` are its own positional arguments.
    """

    watch: "Watch"
    func: Any
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    bound: Mapping[str, Any]
    out: Any
    plain: tuple[Any, ...]

    @property
    def x(self) -> Any:
        """The first argument."""
        return self.args[0]

    def computed(self) -> Any:
        """The operator itself, in all copies."""
        return self.across(wide(self.func), *self.args, **self.kwargs)

    def across(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A function in all copies: of constants once per constant copy, else in every world."""
        shadows = [*shadows_in((args, [*kwargs.values()]))]
        constant = all(s.constant for s in shadows)
        # A maximum has more worlds than its neighbours, up to the next oracle.
        most = max([len(self.watch.oracles.copies), *(len(s.copies) for s in shadows)])
        outs = []
        for i in range(COPIES if constant else most):
            outs.append(function(*in_copy(args, i), **{name: in_copy(value, i) for name, value in kwargs.items()}))
        if not isinstance(outs[0], (tuple, list)):
            return Shadow(outs, constant)
        parts = zip(*outs, strict=True)
        return [Shadow(part, constant) if isinstance(part[0], Tensor) else None for part in parts]

    def oracle(self, name: str, shadow: Shadow, positive: float | None = None) -> Shadow:
        """A random function that both networks share."""
        return self.watch.oracle(name, shadow, positive)

    def shadow(self, value: Any) -> Any:
        """A Python number with its shaken copies; anything else as it is."""
        return self.watch.numbers.scalar(value) if isinstance(value, (int, float)) else value

    def loud(self, value: Any) -> Any:
        """An epsilon, in some worlds multiplied so that large numbers do not hide it; anything else as it is."""
        one = isinstance(value, float) or (is_single(value) and is_shadow(value) and not value.of(0).is_complex())
        size = abs(float(value if isinstance(value, float) else value.of(0))) if one else 0.0
        if not 0 < size < SMALL:
            return value
        number, factor = self.shadow(value), 2.0**17 if size > TINY else 2.0**31
        copies = self.watch.oracles.copies
        return Shadow(number.of(i) * (factor if scale_of(w) == 1 else 1.0) for w, i in copies)


def shadows_in(value: Any) -> Iterator[Shadow]:
    """The shadows among arguments. Written out, as pytree takes longer than many operators."""
    if isinstance(value, Shadow):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from shadows_in(part)


def in_copy(value: Any, i: int) -> Any:
    """Arguments, with copy i in place of each shadow."""
    if isinstance(value, Shadow):
        return value.of(i)
    return [in_copy(part, i) for part in value] if isinstance(value, (list, tuple)) else value


def is_single(value: Any) -> bool:
    """Whether it is one number that no input changes."""
    if isinstance(value, Shadow):
        return value.constant and value.of(0).numel() == 1
    return isinstance(value, (int, float))


def has_large_numbers(value: Any) -> bool:
    """Whether there are large numbers that are no masks, and not of the input: float32 loses others beside them."""
    value = value.of(0) if isinstance(value, Shadow) and value.constant else value
    if isinstance(value, Tensor) and not value.is_complex():
        if not value.numel() or (value.max() <= 128 and value.min() >= -128):  # most tensors; NaN goes on
            return False
        return bool(((value > 128) | ((value < -128) & (value >= MASKED))).any())
    return isinstance(value, (int, float, complex)) and abs(value) > 128


def wide(func: Callable[..., Any]) -> Callable[..., Any]:
    """The operator on copies: a dtype among its arguments becomes that of the copy."""

    def widened(*args: Any, **kwargs: Any) -> Any:
        if not any(isinstance(t, torch.dtype) for t in (*args, *kwargs.values())):
            return func(*args, **kwargs)
        numbers = (t.dtype for t in tree_leaves((args, kwargs)) if is_number(t))
        real = next(numbers, torch.float64).to_real()

        def swapped(t: Any) -> Any:
            if not isinstance(t, torch.dtype):
                return t
            return real.to_complex() if t.is_complex else real if t.is_floating_point else t

        return func(*map(swapped, args), **{name: swapped(value) for name, value in kwargs.items()})

    return widened


def viewed(t: Tensor, size: Any) -> Tensor:
    """A view, or a copy where the strides of the copy differ from the plain tensor's."""
    try:
        return t.view(size)
    except RuntimeError:
        return t.reshape(size)
