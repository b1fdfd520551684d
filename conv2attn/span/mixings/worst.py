"""The best mixings of single queries, and the worst query of each target, over all queries of all processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np

from conv2attn.span.conditions.condition import Mixing, Row
from conv2attn.span.conditions.portions import Portion, Whole
from conv2attn.span.conditions.problem import Array, Targets

Best = tuple[Array, Array]


@final
@dataclass(frozen=True, eq=False)
class Kept:
    """Of the rows (image * queries + query) those `kind` stands for: by target, mixings and what they leave."""

    rows: Whole
    kind: Whole
    best: dict[int, Best]


@final
@dataclass(eq=False)
class WorstQueries:
    """For each target: the largest `residual` and `norm` of the best mixings, and the highest `floor` of all queries.

    `places` are the rows with the highest floor, `against` the mixings that show it. Mixings are kept as long as no
    query refutes the target.
    """

    residual: Array
    floor: Array
    norm: Array
    places: Whole
    against: list[Row]
    per_image: int
    kept: list[Kept]

    @staticmethod
    def of_none(targets: Targets) -> "WorstQueries":
        """Before any query."""
        count, queries = len(targets), targets.places.shape[1]
        lowest, nowhere = np.full(count, -np.inf), np.full(count, -1)
        return WorstQueries(np.zeros(count), lowest, np.zeros(count), nowhere, [()] * count, queries, [])

    def add(self, portion: Portion, best: Best, worst: Best, keep_below: float) -> None:
        """The queries of a portion: mixings with what they leave, and floors with the mixings that show them."""
        (chosen, high), (low, against) = best, worst
        first = portion.image * self.per_image
        self.residual = np.maximum(self.residual, high.max(0))
        self.norm = np.maximum(self.norm, np.abs(chosen).sum(-1).max(0))
        for j, under in enumerate(low.argmax(0)):
            if low[under, j] > self.floor[j]:
                self.floor[j], self.places[j] = low[under, j], first + portion.queries[under]
                self.against[j] = tuple(map(float, against[under, j]))
        left = {int(j): (chosen[:, j], high[:, j]) for j in np.flatnonzero(self.floor <= keep_below)}
        self.kept.append(Kept(first + portion.members, portion.kind, left))

    @staticmethod
    def of_all(parts: Sequence["WorstQueries"]) -> "WorstQueries":
        """That of all processes; of equal floors that of the first query."""
        residual, floor, norm = (
            np.max([getattr(part, name) for part in parts], 0) for name in ("residual", "floor", "norm")
        )
        highest = [min(parts, key=partial(WorstQueries.order, target=j)) for j in range(len(floor))]
        places = np.array([part.places[j] for j, part in enumerate(highest)], dtype=np.int64)
        against = [part.against[j] for j, part in enumerate(highest)]
        kept = [each for part in parts for each in part.kept]
        return WorstQueries(residual, floor, norm, places, against, parts[0].per_image, kept)

    def order(self, target: int) -> tuple[float, int]:
        """Highest floors first, then first queries."""
        return -float(self.floor[target]), int(self.places[target])

    def figures(self, target: int) -> tuple[float, float, float]:
        """Residual, floor and norm."""
        return float(self.residual[target]), max(0.0, float(self.floor[target])), float(self.norm[target])

    def shown(self, target: int) -> Mixing:
        """What refutes a target at its worst query."""
        return Mixing(target, "refuted", self.against[target], int(self.places[target]))

    def rows(self, target: int) -> tuple[Row, ...]:
        """The best mixing of each query, images one after the other."""
        rows: dict[int, Row] = {}
        for kept in self.kept:
            once = [tuple(map(float, row)) for row in kept.best[target][0]]
            rows.update(zip(kept.rows.tolist(), (once[k] for k in kept.kind), strict=True))
        return tuple(rows[row] for row in sorted(rows))

    def left(self, target: int, serves: float) -> list[int]:
        """The rows whose best mixing leaves more than `serves`."""
        over = [kept.rows[kept.best[target][1][kept.kind] > serves] for kept in self.kept]
        return sorted(np.concatenate(over).tolist())

    def served(self, target: int, serves: float) -> float:
        """The most that a mixing leaves that leaves no more than `serves`."""
        left = np.concatenate([kept.best[target][1] for kept in self.kept])
        return float(left[left <= serves].max(initial=0.0))
