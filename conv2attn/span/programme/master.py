"""The linear programme over the cuts of one target: the next mixing, a lower bound, and the weights of the cuts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np

from conv2attn.span.conditions.problem import Array
from conv2attn.span.programme.cuts import Cut

BOX = 1e3
"""How far the variables go, in units in which what least squares leaves is 1."""
LARGE = 1e3
"""Bounds this much above the norm of the start bind nobody, and would only spoil the scale."""

IDLE = 3
"""Solutions in a row that give a cut no weight before it is dropped."""
AT_ONCE = 2**14
"""Slopes of cuts in one call of the solver: more at once take memory and save no time."""


@final
@dataclass(eq=False)
class Master:
    """Cuts of one target, in the variables x of `phi = start + frame x`, with what is left in units of `unit`."""

    start: Array
    frame: Array
    unit: float
    bound: float
    cuts: list[Cut] = field(default_factory=list)
    at: list[Array] = field(default_factory=list)
    idle: list[int] = field(default_factory=list)

    def add(self, cuts: list[Cut], mixing: Array) -> None:
        """The cuts that were found at a mixing."""
        self.cuts += cuts
        self.at += [mixing] * len(cuts)
        self.idle += [0] * len(cuts)

    def forget(self, weights: Array) -> Array:
        """Drops the cuts that had no weight in the last solutions, which does not change this one; the weights left.

        Called where what is left has risen, so that the programme does not return to where it was.
        """
        self.idle = [0 if weight else idle + 1 for weight, idle in zip(weights, self.idle, strict=True)]
        kept = [place for place, idle in enumerate(self.idle) if idle < IDLE]
        self.cuts, self.at = [self.cuts[place] for place in kept], [self.at[place] for place in kept]
        self.idle = [self.idle[place] for place in kept]
        return weights[kept]

    @property
    def bounded(self) -> bool:
        """Whether the bound on the norm may bind."""
        return self.bound < LARGE * max(1.0, float(np.abs(self.start).sum()))

    def programme(self) -> tuple[Array, Array, int]:
        """Rows, right sides and number of free variables: `rows z <= side`, z the variables, then what is left."""
        slopes = np.array([cut.slopes for cut in self.cuts])
        rows = slopes @ self.frame / self.unit
        moved = ((np.array(self.at) - self.start) * slopes).sum(-1)
        left = (np.array([cut.left for cut in self.cuts]) + moved) / self.unit
        (heads, columns), count = self.frame.shape, len(rows)
        matrix, side = np.hstack([-rows, -np.ones((count, 1))]), -left
        if not self.bounded:
            return matrix, side, columns
        eye, none = np.eye(heads), np.zeros((heads, 1))
        frame, start = self.frame / self.bound, self.start / self.bound
        blocks = [
            np.hstack([matrix, np.zeros((count, heads))]),
            np.hstack([frame, none, -eye]),
            np.hstack([-frame, none, -eye]),
            np.hstack([np.zeros((1, columns + 1)), np.ones((1, heads))]),
        ]
        return np.concatenate(blocks), np.concatenate([side, -start, start, np.ones(1)]), columns

    def mixing(self, variables: Array) -> Array:
        """The mixing of these variables, within the norm."""
        found: Array = self.start + self.frame @ variables
        size = float(np.abs(found).sum())
        return found * (self.bound * (1 - 1e-15) / size) if size > self.bound else found


def solve(masters: Sequence[Master]) -> list[tuple[Array, float, Array] | None]:
    """For each: the mixing that is best for its cuts, what it leaves of them at most, and the cuts' weights.

    Solved as one programme of blocks, since most of the time of a small one goes into calling the solver. None where it
    fails; nothing rests on an answer but where to look next, and which dual to weigh.
    """
    if not masters:
        return []
    sizes = np.cumsum([len(master.cuts) * len(master.start) for master in masters])
    if len(masters) > 1 and sizes[-1] > AT_ONCE:
        first = max(1, int(np.searchsorted(sizes, AT_ONCE)))
        return solve(masters[:first]) + solve(masters[first:])
    from scipy.optimize import linprog
    from scipy.sparse import block_diag

    parts = [master.programme() for master in masters]
    widths = [rows.shape[1] for rows, _, _ in parts]
    costs = np.zeros(sum(widths))
    limits: list[tuple[float, float | None]] = [(0.0, None)] * sum(widths)
    starts, tops = np.cumsum([0, *widths]), np.cumsum([0, *(len(side) for _, side, _ in parts)])
    for at, (_, _, columns) in zip(starts, parts, strict=False):
        costs[at + columns] = 1
        limits[at : at + columns] = [(-BOX, BOX)] * columns
    matrix = block_diag([rows for rows, _, _ in parts], format="csr")
    found = linprog(costs, A_ub=matrix, b_ub=np.concatenate([s for _, s, _ in parts]), bounds=limits, method="highs")
    if found.status != 0:
        return [answer for master in masters for answer in solve([master])] if len(masters) > 1 else [None]
    answers: list[tuple[Array, float, Array] | None] = []
    for place, (master, (_, _, columns)) in enumerate(zip(masters, parts, strict=True)):
        x = found.x[starts[place] : starts[place] + columns + 1]
        weights = -found.ineqlin.marginals[tops[place] : tops[place] + len(master.cuts)]
        answers.append((master.mixing(x[:columns]), float(x[columns]) * master.unit, np.maximum(weights, 0.0)))
    return answers
