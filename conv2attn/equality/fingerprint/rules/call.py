"""The argument of a rule, and the registry of rules."""

from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor

from conv2attn.equality.fingerprint.formulas import quotient
from conv2attn.equality.fingerprint.residues import NOT_NEGATIVE, Factor, Residues, bits_of_sum, knowledge
from conv2attn.equality.fingerprint.tensors import FieldTensor

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}
"""Rules by the operator's name, without overload and in-place underscore."""
NOTHING = object()
"""An empty result, as of norms without running statistics."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule. Its arguments are named as in the operator's schema."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


@final
class Call:
    """One call of an operator, with operands as numbers of the result's dtype.

    Args:
        outs: the results on the meta device.
    """

    def __init__(self, numbers: Any, func: Any, base: str, dtype: torch.dtype, outs: Sequence[Tensor]):
        self.numbers, self.field, self.func, self.base = numbers, numbers.field, func, base
        self.dtype, self.outs = dtype, outs

    def operand(self, value: Any) -> Residues:
        """An operand as residues."""
        return self.numbers.operand(value, self.dtype)

    def factor(self, value: Any) -> Factor:
        """An operand as a factor of products."""
        if isinstance(value, Tensor) and not self.numbers.depends(value):
            return self.field.factor(self.numbers.real(value).to(self.dtype))
        return self.field.as_factor(self.operand(value))

    def summand(self, value: Any) -> Residues:
        """An operand as residues; numbers below -1e30 of a constant become -inf, since they mask scores."""
        return self.numbers.operand(self.numbers.masking(value), self.dtype)

    def constant(self, value: Any) -> Any:
        """The real numbers of an operand; None if it depends on the input."""
        if isinstance(value, bool | int | float):
            return torch.tensor(value, dtype=self.dtype)
        return None if self.numbers.depends(value) else self.numbers.real(value).to(self.dtype)

    def sums(self, function: Callable[..., Tensor], *numbers: Residues) -> Residues:
        """Sums of numbers by `function`, which acts on integers; applied to ones it counts the summands of each sum.

        Raises:
            Undecided: some numbers are not finite.
        """
        for each in numbers:
            self.field.usable(each, "a sum")
        counts = function(*(torch.ones(each.shape, dtype=torch.int64) for each in numbers))
        sums = torch.empty(self.field.count, *counts.shape, dtype=torch.int64)
        for out, *values in zip(sums, *(each.values for each in numbers), strict=True):
            out.copy_(function(*(each.long() for each in values)))
        facts = knowledge(*numbers)
        facts["size_bits"] += bits_of_sum(int(counts.sum() and counts.max()))
        if not bool(counts.all()):
            facts["sign"] = min(NOT_NEGATIVE, facts["sign"])
        return Residues(self.field.reduced(sums), None, **facts)

    def quotient(self, numerator: Residues, denominator: Any) -> Residues:
        """A numerator divided by an operand."""
        return quotient(self.field, numerator, self.operand(denominator), self.constant(denominator))


def axes_of(numbers: Residues, dim: Any) -> list[int]:
    """The axes that an argument `dim` names; None and an empty list mean all axes."""
    return [dim] if isinstance(dim, int) else list(dim or range(len(numbers.shape)))


def same_view(first: Any, second: Any) -> bool:
    """Whether two operands are the same numbers."""
    both = isinstance(first, FieldTensor) and isinstance(second, FieldTensor)
    return both and first.field_store is second.field_store and first.field_view == second.field_view
