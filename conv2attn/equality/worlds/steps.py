"""One operator of a network with its shadows, and the table of rules by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from conv2attn.equality.worlds.all_copies import in_all_copies, wide
from conv2attn.equality.worlds.shadows import COPIES, MASKED, Shadow, is_shadow

if TYPE_CHECKING:
    from conv2attn.equality.worlds.watch import Watch

Rule = Callable[["Step"], Any]
RULES: dict[str, Rule] = {}
"""Rules by the operator's name. A rule that returns NotImplemented leaves the operator to the next general rule."""
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

    `bound` has all arguments by name, `out` is the network's own result, `plain` are its own positional arguments.
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

    @property
    def is_view(self) -> bool:
        """Whether its results share the memory of an argument."""
        # `unsafe_split` declares no alias, although its results are views: its caller promises not to read the whole
        # after writing to a part. GRU uses it.
        schema = self.func._schema
        shared = any(r.alias_info for r in schema.returns) or self.name.startswith("unsafe_split")
        return shared and not schema.is_mutable

    @property
    def fixed_arguments(self) -> dict[str, Any]:
        """By name, the arguments that do not depend on the input, as the network's own tensors and numbers."""
        plain = {**self.bound, **dict(zip(self.bound, self.plain, strict=False))}
        return {name: value for name, value in plain.items() if is_fixed(self.bound[name])}

    def computed(self) -> Any:
        """Computes the operator itself in all copies."""
        return self.across(wide(self.func), *self.args, **self.kwargs)

    def across(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Applies a function to all copies of its arguments."""
        return in_all_copies(self.watch.oracles.worlds * COPIES, function, *args, **kwargs)

    def oracle(self, name: str, shadow: Shadow, positive: float | None = None) -> Shadow:
        """A random function that both networks share."""
        return self.watch.oracle(name, shadow, positive)

    def shadow(self, value: Any) -> Any:
        """A Python number with its shaken copies; other values unchanged."""
        return self.watch.numbers.scalar(value) if isinstance(value, (int, float)) else value

    def stored(self, value: float) -> float:
        """A Python number as exported files store it: in float32, unless the operator's own numbers are in float64."""
        return float(value) if self.out.dtype == torch.float64 else float(torch.tensor(value, dtype=torch.float32))

    def loud(self, value: Any) -> Any:
        """An epsilon, in some worlds multiplied so that large numbers do not hide it; other values unchanged."""
        one = isinstance(value, float) or (is_single(value) and is_shadow(value) and not value.of(0).is_complex())
        size = abs(float(value if isinstance(value, float) else value.of(0))) if one else 0.0
        if not 0 < size < SMALL:
            return value
        factor, oracles = torch.tensor(2.0**17 if size > TINY else 2.0**31), self.watch.oracles
        factors = oracles.spread([factor if scale == 1 else torch.tensor(1.0) for scale in oracles.scales])
        return self.across(torch.mul, self.shadow(value), factors)


def is_fixed(value: Any) -> bool:
    """Whether a value is a stored tensor, a Python number, or a list without tensors."""
    if isinstance(value, (list, tuple)):
        return not any(isinstance(t, (Tensor, Shadow)) for t in value)
    return value.constant if isinstance(value, Shadow) else isinstance(value, (int, float))


def is_single(value: Any) -> bool:
    """Whether a value is one number that no input changes."""
    if isinstance(value, Shadow):
        return value.constant and value.of(0).numel() == 1
    return isinstance(value, (int, float))


def has_large_numbers(value: Any) -> bool:
    """Whether there are large numbers other than masks or inputs: float32 loses small numbers beside them."""
    value = value.of(0) if isinstance(value, Shadow) and value.constant else value
    if isinstance(value, Tensor) and not value.is_complex():
        if not value.numel() or all(-128 <= float(t) <= 128 for t in value.aminmax()):  # most tensors; NaN goes on
            return False
        return bool(((value > 128) | ((value < -128) & (value >= MASKED))).any())
    return isinstance(value, (int, float, complex)) and abs(value) > 128
