"""Kelley's method: cutting planes of the residual from passes over the rows, and the programme over them.

At a mixing p, the signs s of `r_q = e_q - p A_q` give `|e_q - phi A_q|_1 >= |r_q|_1 - <A_q s, phi - p>` for every phi.

Source: Kelley 1960; the programme is solved by HiGHS (Huangfu and Hall 2018), of which nothing is trusted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from conv2attn.span.attention_rows import ROUNDOFF, Array
from conv2attn.span.equations import Portion, Targets
from conv2attn.theory.bounds import gamma

CANDIDATES = 4
"""Mixings a head of which what is left is held at once."""
BOX = 1e3
"""How far the variables go at most, in units in which what least squares leaves is 1."""
LARGE_BOUND = 1e3
"""Bounds this much above the norm of the start bind nobody, and would only spoil the scale."""
AT_ONCE = 2**14
"""Slopes of planes in one call of the solver: more at once take memory and save no time."""


@final
@dataclass(frozen=True, eq=False)
class Plane:
    """At a row: what is left there, the plane's slopes, and the signs at these keys of the grid (or all)."""

    row: int
    left: float
    slopes: Array
    signs: NDArray[np.int8]
    keys: NDArray[np.int64] | None

    def spread(self, width: int) -> Array:
        """The signs at all keys."""
        if self.keys is None:
            return self.signs.astype(np.float64)
        signs = np.zeros(width)
        signs[self.keys[self.keys >= 0]] = self.signs[self.keys >= 0]
        return signs


def rounded_up(left: Array, mixings: Array, coefficients: Array, asked: Array, row_sum: float, width: int) -> Array:
    """`left`, the computed sums over keys of `e - phi A`, with all rounding of float64 on top.

    No key is asked for by two taps of one row; `asked` is the largest sum of what is asked for at one. Mixings with at
    most one non-zero, a power of two, make exact products.
    """
    steps = mixings.shape[-1] + 4
    reach = asked + np.abs(mixings).sum(-1) * row_sum
    powers = ((np.frexp(np.abs(mixings))[0] == 0.5) | (mixings == 0)).all(-1)
    selects = ((mixings != 0).sum(-1) <= 1) & powers & ((coefficients != 0).sum(-1) <= 1)
    drift = np.where(selects, 0.0, gamma(steps, ROUNDOFF["float64"]) * reach)
    return np.asarray((left + drift) * (1 + 2 * gamma(width + 4, ROUNDOFF["float64"])))


def left_by(portion: Portion, coefficients: Array, mixings: Array) -> Array:
    """`e - phi A` of each candidate, (candidates, rows, keys)."""
    heads, rows, keys = portion.attention.shape
    left = (-mixings @ portion.attention.reshape(heads, -1)).reshape(len(mixings), rows, keys)
    for tap, places in enumerate(portion.places):
        queries = np.flatnonzero(places >= 0)
        left[:, queries, places[queries]] += coefficients[:, tap, None]
    return left


def residuals_of(
    portions: Iterable[Portion], targets: Targets, width: int, mixings: Array, wanted: NDArray[np.int64], most: int
) -> tuple[Array, list[list[Plane]]]:
    """Residual of each mixing (candidates, heads), for target `wanted[c]`, at the worst row, rounded up.

    With it come the planes of the at most `most` rows where it leaves most. `width` is the number of keys of the grid.
    """
    worst, row_sum = np.zeros(len(mixings)), 0.0
    planes: list[list[Plane]] = [[] for _ in mixings]
    for portion in portions if len(mixings) else ():
        row_sum, width = max(row_sum, float(portion.attention.sum(-1).max())), max(width, portion.attention.shape[2])
        step = CANDIDATES * mixings.shape[-1]
        for start in range(0, len(mixings), step):
            part = slice(start, start + step)
            left = left_by(portion, targets.coefficients[wanted[part]], mixings[part])
            sizes = np.abs(left).sum(-1)
            worst[part] = np.maximum(worst[part], sizes.max(-1))
            for place, size in enumerate(sizes if most else ()):
                planes[start + place] = worst_planes(planes[start + place], portion, left[place], size, most)
    coefficients, largest = targets.coefficients[wanted], targets.largest[wanted]
    return rounded_up(worst, mixings, coefficients, largest, row_sum * (1 + 1e-9), width), planes


def worst_planes(before: list[Plane], portion: Portion, left: Array, sizes: Array, most: int) -> list[Plane]:
    """The planes of the rows with the most left, of those before and those of a portion."""
    least = before[-1].left if len(before) == most else -1.0
    if sizes.max() <= least:
        return before
    planes = list(before)
    for at in np.argsort(-sizes, kind="stable")[:most]:
        if sizes[at] <= least:
            break
        signs = np.sign(left[at])
        keys = None if portion.keys is None else portion.keys[at]
        slopes = portion.attention[:, at] @ signs
        planes.append(Plane(int(portion.rows[at]), float(sizes[at]), slopes, signs.astype(np.int8), keys))
    return sorted(planes, key=lambda plane: -plane.left)[:most]


@final
@dataclass(eq=False)
class Programme:
    """Planes of one target, in the variables of `phi = start + frame x + bound idle z`, with what is left in `unit`s.

    Some best x has entries of at most `box`. `idle` are directions (heads, count) that move no row: they serve to keep
    the norm within its bound, and entries of z are at most 2.
    """

    start: Array
    frame: Array
    unit: float
    bound: float
    box: Array
    idle: Array
    planes: list[Plane] = field(default_factory=list)
    at: list[Array] = field(default_factory=list)

    def scale(self, unit: float) -> None:
        """Takes what the best mixing leaves as unit, once the planes at the start are there.

        Another that leaves no more is within the sum of what both leave at each row, and in the mean over the rows.
        """
        self.unit, self.frame = unit, self.frame * unit
        self.box = np.minimum(BOX, 1.01 * (1 + self.planes[0].left / unit) * self.box)

    def add(self, planes: list[Plane], mixing: Array) -> None:
        """The planes that were found at a mixing."""
        self.planes += planes
        self.at += [mixing] * len(planes)

    @property
    def binds(self) -> bool:
        """Whether the bound on the norm is near enough to the norm of the start to matter."""
        return self.bound < LARGE_BOUND * max(1.0, float(np.abs(self.start).sum()))

    def matrices(self) -> tuple[Array, Array, int]:
        """Rows, right sides and the number of entries of x: `rows v <= side`, v being x, then what is left, then z."""
        slopes = np.array([plane.slopes for plane in self.planes])
        rows = slopes @ self.frame / self.unit
        moved = ((np.array(self.at) - self.start) * slopes).sum(-1)
        left = (np.array([plane.left for plane in self.planes]) + moved) / self.unit
        (heads, columns), count = self.frame.shape, len(rows)
        matrix, side = np.hstack([-rows, -np.ones((count, 1))]), -left
        if not self.binds:
            return matrix, side, columns
        eye, none = np.eye(heads), np.zeros((heads, 1))
        frame, start = self.frame / self.bound, self.start / self.bound
        blocks = [
            np.hstack([matrix, np.zeros((count, self.idle.shape[1] + heads))]),
            np.hstack([frame, none, self.idle, -eye]),
            np.hstack([-frame, none, -self.idle, -eye]),
            np.hstack([np.zeros((1, columns + 1 + self.idle.shape[1])), np.ones((1, heads))]),
        ]
        return np.concatenate(blocks), np.concatenate([side, -start, start, np.ones(1)]), columns

    def mixing(self, variables: Array) -> Array:
        """The mixing of these variables, within the norm."""
        columns = self.frame.shape[1]
        mixing: Array = self.start + self.frame @ variables[:columns]
        if self.binds:
            mixing = mixing + self.bound * self.idle @ variables[columns + 1 :][: self.idle.shape[1]]
        size = float(np.abs(mixing).sum())
        return mixing * (self.bound * (1 - 1e-15) / size) if size > self.bound else mixing


def solve(programmes: Sequence[Programme]) -> list[tuple[Array, float, Array] | None]:
    """For each: the mixing that is best for its planes, what it leaves of them at most, and the planes' weights.

    Solved as one programme of blocks, since most of the time of a small one goes into calling the solver. None where it
    fails; nothing rests on an answer but where to look next, and which dual to weigh.
    """
    if not programmes:
        return []
    sizes = np.cumsum([len(each.planes) * len(each.start) for each in programmes])
    if len(programmes) > 1 and sizes[-1] > AT_ONCE:
        first = max(1, int(np.searchsorted(sizes, AT_ONCE)))
        return solve(programmes[:first]) + solve(programmes[first:])
    from scipy.optimize import linprog
    from scipy.sparse import block_diag, coo_array

    parts = [each.matrices() for each in programmes]
    widths = [rows.shape[1] for rows, _, _ in parts]
    costs = np.zeros(sum(widths))
    limits: list[tuple[float, float | None]] = [(0.0, None)] * sum(widths)
    starts, tops = np.cumsum([0, *widths]), np.cumsum([0, *(len(side) for _, side, _ in parts)])
    for at, each, (_, _, columns) in zip(starts, programmes, parts, strict=False):
        costs[at + columns] = 1
        limits[at : at + columns] = [(-most, most) for most in each.box.tolist()]
        if each.binds:
            limits[at + columns + 1 : at + columns + 1 + each.idle.shape[1]] = [(-2.0, 2.0)] * each.idle.shape[1]
    # Sparse arrays, since what block_diag makes of dense blocks differs between versions of SciPy.
    matrix = block_diag([coo_array(rows) for rows, _, _ in parts], format="csr")
    solution = linprog(costs, A_ub=matrix, b_ub=np.concatenate([s for _, s, _ in parts]), bounds=limits, method="highs")
    if solution.status != 0:
        return [answer for each in programmes for answer in solve([each])] if len(programmes) > 1 else [None]
    answers: list[tuple[Array, float, Array] | None] = []
    for place, (each, (_, _, columns)) in enumerate(zip(programmes, parts, strict=True)):
        x = solution.x[starts[place] : starts[place + 1]]
        weights = -solution.ineqlin.marginals[tops[place] : tops[place] + len(each.planes)]
        answers.append((each.mixing(x), float(x[columns]) * each.unit, np.maximum(weights, 0.0)))
    return answers
