"""Records of the tensors of a run: numbers that no layout changes, and where they were made."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.worlds.shadows import COPIES, GAIN, SCALES, Shadow, is_number
from conv2attn.equality.worlds.steps import Step
from conv2attn.equality.worlds.units import LIMIT


@dataclass(frozen=True)
class Record:
    """A tensor: the means of its numbers, squares and cubes in each world, and what shaking changes in them.

    The fourth mean weighs the numbers by their place, so it alone changes with their order.
    """

    operator: str
    place: str
    inputs: list[int]  # the records that went in
    count: int
    means: Tensor  # (worlds, 4)
    squares: Tensor  # (worlds, 4)
    numbers: dict[str, Any] = field(default_factory=dict)  # the operator's Python numbers, by name
    constants: dict[str, Tensor] = field(default_factory=dict)  # its stored tensors, by name

    @classmethod
    def of(cls, shadow: Shadow, dtype: torch.dtype, step: Step | None, place: str, inputs: list[int]) -> "Record":
        """The record of a shadow; without a step it is an input of the network."""
        copies = [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in shadow.copies]
        x = torch.stack(copies).double().reshape(len(copies), copies[0].numel()).unflatten(0, (-1, COPIES))
        x = torch.where(x.abs() < 1e30, x, 0.0).nan_to_num(0.0)
        order = torch.linspace(1, 2, max(x.shape[-1], 1), dtype=torch.float64)[: x.shape[-1]]
        means = torch.stack([x.mean(-1), x.square().mean(-1), x.pow(3).mean(-1), (x * order).mean(-1)], -1)
        squares = ((means[:, 1:] - means[:, :1]) / GAIN[dtype]).square().mean(1)
        # Over the worlds of one scale: a mean is one number, whose four shakes may all be small by chance.
        pooled = squares.unflatten(0, (-1, len(SCALES))).mean(0).repeat(len(means) // len(SCALES), 1)
        operator, bound = (step.name, step.bound) if step else ("input", {})
        numbers = {name: value for name, value in bound.items() if isinstance(value, (int, float, list, tuple))}
        numbers = {name: value for name, value in numbers.items() if not contains_tensors(value)}
        constants = plain_constants(step) if step else {}
        return cls(operator, place, inputs, x.shape[-1], means[:, 0], pooled, numbers, constants)

    def agrees(self, other: "Record", moments: int = 3) -> bool:
        """Whether both are the same numbers but for rounding and their order; with 4 moments in their order too."""
        if self.count != other.count:
            return False
        unit = (self.squares + other.squares).sqrt() + 1e-13 * (self.means.abs() + 1e-30)
        return bool(((self.means - other.means).abs() <= LIMIT * unit)[:, :moments].all())


def contains_tensors(value: Any) -> bool:
    """Whether a list of arguments has tensors or their shadows."""
    return isinstance(value, (list, tuple)) and any(isinstance(t, (Tensor, Shadow)) for t in value)


def plain_constants(step: Step) -> dict[str, Tensor]:
    """The tensors among an operator's arguments that no input changes, as the network stores them."""
    names = [p.name for p in step.func._schema.arguments]
    plain = {**dict(zip(names, step.plain, strict=False)), **step.kwargs}
    shadows = {name: step.bound.get(name) for name in plain}
    return {
        name: t.detach()
        for name, t in plain.items()
        if is_number(t) and isinstance(shadow := shadows[name], Shadow) and shadow.constant
    }
