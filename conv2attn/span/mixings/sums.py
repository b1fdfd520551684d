"""Sums over many parts and processes that are rounded seldom, and count how often."""

from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from typing import Any, final

import numpy as np

from conv2attn.span.conditions.problem import Array

PARTS = 64
"""Parts of a sum that are held before they are summed up."""


@final
class Sums:
    """Named sums of arrays over many parts, each rounded once for every `PARTS` of them."""

    def __init__(self, names: Iterable[str]) -> None:
        self.parts: dict[str, list[Array]] = {name: [] for name in names}
        self.folds = 0

    def add(self, parts: Mapping[str, Any]) -> None:
        """One more of each."""
        for name, part in parts.items():
            self.parts[name].append(part.astype(np.float64))
        if len(next(iter(self.parts.values()))) > PARTS:
            self.parts = {name: [total(held)] for name, held in self.parts.items()}
            self.folds += 1

    def held(self) -> tuple[dict[str, list[Array]], int]:
        """What was added, summed up as far as it is, and how often its sums were rounded."""
        return self.parts, self.folds

    @staticmethod
    def together(held: Sequence[tuple[Mapping[str, list[Array]], int]]) -> tuple[dict[str, Array], int]:
        """The sums of all processes, and how often they were rounded."""
        whole = {name: total([part for parts, _ in held for part in parts[name]]) for name in held[0][0]}
        return whole, max(folds for _, folds in held)


def total(parts: list[Array]) -> Array:
    """The sum of arrays, each entry rounded once."""
    stacked = np.stack(parts)
    flat = stacked.reshape(len(stacked), -1)
    return np.array([fsum(column) for column in flat.T]).reshape(stacked.shape[1:])
