"""Records of the tensors of two runs: layout-independent numbers that identify equal tensors."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.worlds.shadows import COPIES, GAIN, SCALES, Shadow, groups_of
from conv2attn.equality.worlds.units import LIMIT

HUGE = 1e30  # numbers that mask; like infinity and NaN they are left out


@dataclass(frozen=True)
class Record:
    """A tensor: the means of its numbers, squares and cubes in each world, and their changes under shaking.

    The fourth mean weights the numbers by their index, so only it depends on their order.
    """

    operator: str
    place: str
    inputs: list[int]  # the records of the inputs
    count: int
    means: Tensor  # (worlds, 4)
    squares: Tensor  # (worlds, 4)
    arguments: Mapping[str, Any] = field(default_factory=dict)  # the operator's Python numbers and stored tensors

    @classmethod
    def of(
        cls, shadow: Shadow, dtype: torch.dtype, operator: str, place: str, inputs: list[int], arguments: Any
    ) -> "Record":
        """The record of a shadow."""
        copies = [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in shadow.copies]
        count = copies[0].numel()
        order = torch.linspace(1, 2, max(count, 1), dtype=torch.float64)[:count]
        worlds = (torch.stack([*world]).double().reshape(COPIES, count) for world in groups_of(copies))
        means = torch.stack([means_of(world, order) for world in worlds])
        squares = ((means[:, 1:] - means[:, :1]) / GAIN[dtype]).square().mean(1)
        # Averaged over the worlds of one scale: a mean is one number, whose four shakes may all be small by chance.
        pooled = squares.unflatten(0, (-1, len(SCALES))).mean(0).repeat(len(means) // len(SCALES), 1)
        return cls(operator, place, inputs, count, means[:, 0], pooled, arguments)

    def agrees(self, other: "Record", moments: int = 3) -> bool:
        """Whether both have equal numbers up to rounding and order; with 4 moments also in the same order."""
        if self.count != other.count:
            return False
        unit = (self.squares + other.squares).sqrt() + 1e-13 * (self.means.abs() + 1e-30)
        return bool(((self.means - other.means).abs() <= LIMIT * unit)[:, :moments].all())


def means_of(x: Tensor, order: Tensor) -> Tensor:
    """The means of the numbers of each copy (row), of their squares and cubes, and weighed by `order`: (copies, 4)."""
    if not float((squares := x.square()).sum()) < HUGE**2:
        squares = (x := torch.where(x.abs() < HUGE, x, 0.0)).square()
    # Memory is reused. With new memory for all copies of a large tensor, this takes four times as long.
    means = [x.mean(1), squares.mean(1), squares.mul_(x).mean(1), torch.mul(x, order, out=squares).mean(1)]
    return torch.stack(means, 1)


class Twins:
    """For each tensor of the second network the latest equal tensor in the first."""

    def __init__(self, ours: Sequence[Record], theirs: Sequence[Record]):
        self.ours, self.theirs = ours, theirs
        self.numbers: dict[int, int | None] = {}
        self.sizes: dict[int, list[int]] = defaultdict(list)
        for number, record in enumerate(ours):
            self.sizes[record.count].append(number)

    def of(self, number: int) -> int | None:
        """The number of the twin, or None."""
        if number not in self.numbers:
            mine = self.theirs[number]
            candidates = reversed(self.sizes[mine.count])
            self.numbers[number] = next((n for n in candidates if mine.agrees(self.ours[n])), None)
        return self.numbers[number]

    def in_order(self, number: int) -> bool:
        """Whether a tensor of the first has the same numbers in the same order."""
        mine = self.theirs[number]
        return any(mine.agrees(self.ours[n], 4) for n in self.sizes[mine.count])

    def first_apart(self, ends: Iterable[int], same: Callable[[int], bool]) -> int | None:
        """The first tensor, walking back from the ends, that differs although all its inputs agree."""
        suspects, stack, visited = set[int](), list(ends), set[int]()
        while stack:
            number = stack.pop()
            if number in visited or same(number):
                continue
            visited.add(number)
            inputs = self.theirs[number].inputs
            stack += inputs
            if all(map(same, inputs)):
                suspects.add(number)
        return min(suspects, default=None)

    def beside(self, inputs: Iterable[int], operator: str) -> Record | None:
        """The records that only the first network computes from these tensors; the same operator comes first."""
        reached = {self.of(n) for n in inputs} - {None}
        matched = set(self.numbers.values())
        here = [record for n, record in enumerate(self.ours) if reached & set(record.inputs) and n not in matched]
        here = [record for record in here if not any(record.agrees(t) for t in self.theirs)]
        return next((r for r in here if r.operator == operator), here[0] if here else None)
