"""The programme of several targets at once: cutting planes in shared passes, and duals that are weighed exactly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import final

import numpy as np
from numpy.typing import NDArray

from conv2attn.bounds import down
from conv2attn.span.conditions.integer_rows import Coefficients, QueryRows, integer_row
from conv2attn.span.conditions.limits import Limits
from conv2attn.span.conditions.portions import Portion, shared
from conv2attn.span.conditions.problem import Array, AttentionRows, Targets
from conv2attn.span.programme.cuts import Cut, look
from conv2attn.span.programme.dual import (
    Dual,
    NormBound,
    Rows,
    floats_of,
    in_integers,
    norm_bound,
    null_of,
    projected,
    refined,
    rows_at,
    weighed,
)
from conv2attn.span.programme.factors import NEGLIGIBLE, Factors
from conv2attn.span.programme.master import Master, solve

STEPS = 60
"""Passes after which an interval stays open; 10 to 20 close it as a rule."""
TIGHT = 0.7
"""A dual is weighed when the programme's lower end is this share of its upper one, and in any case now and then."""
NEAR = 0.999
"""A search ends where a dual as near as this to the upper end does not refute."""
LARGE = 10**7
"""Entries of attention from which most passes look at the worst queries alone, and a verdict is enough: its interval is
not made narrower."""
SHORT = 8
"""Passes of which one is over all queries where there are so many entries."""
HELD = 64
"""Queries that the others look at."""
CUTS = 6
"""Queries that a pass adds for a mixing; the first adds three more than there are heads, so as to bound all of them."""


NEAR_INTEGERS = 1e-9
"""Distance from the integers within which a mixing may be meant to be one of them, and is looked at as such too."""
ROWS = 24
"""Rows of attention that are held in exact numbers at once."""


@final
@dataclass(eq=False)
class Search:
    """One target: the best mixing so far, what it leaves, and what refutes it, if anything does."""

    target: int
    master: Master
    limits: Limits
    mixing: Array
    residual: float = np.inf
    lower: float = 0.0
    weights: Array | None = None
    floor: float = 0.0
    dual: Dual | None = None
    inverse: NormBound | None = None
    holds: bool = False
    refuted: bool = False
    weighed: int = 0
    points: list[Array] = field(default_factory=list)

    def seen(self, mixing: Array, residual: float, cuts: list[Cut], whole: bool) -> None:
        """Takes in what a pass, over the `whole` of the queries or over some, has found at a mixing."""
        norm = float(np.abs(mixing).sum())
        if whole and norm <= self.limits.max_phi:
            fits = residual <= self.limits.allowed(norm)
            if fits > self.holds or (fits == self.holds and residual < self.residual):
                self.mixing, self.residual, self.holds = mixing, residual, fits
        self.master.add(cuts, mixing)

    def next(self, found: tuple[Array, float, Array] | None) -> None:
        """Sets out where to look next, from what solves the programme over the cuts."""
        self.points = []
        if found is None:
            return
        mixing, lower, weights = found
        self.weights = self.master.forget(weights) if lower > self.lower else weights
        self.lower = max(self.lower, lower)
        self.points = [mixing, 0.4 * mixing + 0.6 * self.mixing]

    @property
    def closed(self) -> bool:
        """Whether nothing is left to look for."""
        spent = self.weighed > 0 and self.lower >= NEAR * self.residual
        return self.holds or self.refuted or not self.points or spent or self.lower >= self.residual * (1 - 1e-9)

    def wants_weighing(self, step: int, large: bool) -> bool:
        """Whether its dual may refute now: where it is near, but of a large problem only before the next long pass."""
        if self.weights is None or self.lower <= self.limits.allowed(0.0):
            return False
        near = self.lower >= TIGHT * self.residual and self.weighed < 1 and not large
        return self.closed or near or step in (7, 15, 31) or self.lower >= NEAR * self.residual

    def direction(self, width: int) -> dict[int, Array]:
        """The numbers y of the programme's dual, at the rows that have any."""
        assert self.weights is not None
        found: dict[int, Array] = {}
        for weight, cut in zip(self.weights, self.master.cuts, strict=False):
            if weight > 1e-9:
                found[cut.row] = found.get(cut.row, np.zeros(width)) + weight * cut.spread(width)
        return found


def begin(targets: Targets, factors: Factors, limits: Limits, wanted: Sequence[int], queries: int) -> list[Search]:
    """A search for each wanted target, from the mixing of least squares within the norm."""
    kept = factors.singular > NEGLIGIBLE * max(factors.singular.max(initial=0.0), 1e-300)
    lengths = np.minimum(np.sqrt(queries) / factors.singular[kept], limits.max_phi)
    frame = (factors.directions[kept] * lengths[:, None]).T
    return [
        Search(j, Master(factors.bounded[j], frame, 1.0, limits.max_phi), limits, factors.bounded[j]) for j in wanted
    ]


def run(
    attention: AttentionRows,
    targets: Targets,
    chosen: NDArray[np.bool_],
    limits: Limits,
    factors: Factors,
    wanted: Sequence[int],
) -> dict[int, Search]:
    """The wanted targets, each as far as it could be decided."""
    if not wanted:
        return {}
    queries = int(chosen.sum()) * attention.images
    searches = begin(targets, factors, limits, wanted, queries)
    large = attention.heads * queries * attention.width > LARGE
    held: list[Portion] = []
    open_still = list(searches)
    for each in open_still:
        near = np.round(each.mixing)
        rounded = [near] if np.abs(near - each.mixing).max() <= NEAR_INTEGERS else []
        each.points = [each.mixing, *rounded, np.zeros_like(each.mixing)]
    for step in range(STEPS):
        most = CUTS if step else attention.heads + 3
        points = [(each, point) for each in open_still for point in each.points]
        if not points:
            break
        places = np.array([each.target for each, _ in points])
        whole = not large or step % SHORT == 0
        seen = shared(attention, targets, chosen) if whole else held
        mixings = np.array([point for _, point in points])
        residuals, cuts = look(seen, targets, attention.width, mixings, places, most)
        for (each, point), residual, found in zip(points, residuals, cuts, strict=True):
            each.seen(point, float(residual), found, whole)
        if large and whole:
            held = worst_rows(attention, targets, chosen, open_still)
        if not step:
            for each in open_still:
                scale = each.residual if np.isfinite(each.residual) and each.residual > 0 else 1.0
                each.master.unit, each.master.frame = scale, each.master.frame * scale
        open_still = [each for each in open_still if not each.holds]
        for each, answer in zip(open_still, solve([each.master for each in open_still]), strict=True):
            each.next(answer)
        weigh(attention, targets, [each for each in open_still if each.wants_weighing(step, large)], held)
        open_still = [each for each in open_still if not each.closed]
    left = [each for each in searches if not (each.holds or each.refuted) and each.weights is not None]
    weigh(attention, targets, left, held)
    return {each.target: each for each in searches}


def worst_rows(
    attention: AttentionRows, targets: Targets, chosen: NDArray[np.bool_], searches: Sequence[Search]
) -> list[Portion]:
    """The queries at which the cuts of each search leave most, to be looked at again without a pass over all."""
    most, per_image = max(attention.heads + 1, HELD // len(searches)), targets.places.shape[1]
    wanted: set[int] = set()
    for each in searches:
        ordered = dict.fromkeys(cut.row for cut in sorted(each.master.cuts, key=lambda cut: -cut.left))
        wanted |= set(list(ordered)[:most])
    found = []
    for portion in shared(attention, targets, chosen):
        mine = np.flatnonzero(np.isin(portion.image * per_image + portion.queries, list(wanted)))
        found += [portion.only(mine)] if len(mine) else []
    return found


def rows_held(
    attention: AttentionRows, targets: Targets, wanted: Sequence[int], held: Sequence[Portion]
) -> dict[int, QueryRows]:
    """The exact attention at these rows: of those that are held from there, of the others in one pass."""
    found, per_image = {}, targets.places.shape[1]
    for portion in held if not attention.exact and attention.hot is None else ():
        for at, query in enumerate(map(int, portion.queries)):
            if (row := portion.image * per_image + query) in wanted:
                found[row] = integer_row(portion.image, query, portion.attention[:, at], targets)
    missing = [row for row in wanted if row not in found]
    return found | (rows_at(attention, targets, missing) if missing else {})


def weigh(attention: AttentionRows, targets: Targets, searches: Sequence[Search], held: Sequence[Portion] = ()) -> None:
    """Weighs the duals of these searches exactly, some at a time, on the rows that they need."""
    coefficients, left = Coefficients.exactly(targets.coefficients), list(searches)
    while left:
        group = [left.pop(0)]
        directions = [group[0].direction(attention.width)]
        while left and sum(map(len, directions)) < ROWS:
            group.append(left.pop(0))
            directions.append(group[-1].direction(attention.width))
        rows = rows_held(attention, targets, [row for found in directions for row in found], held)
        for each, found in zip(group, directions, strict=True):
            if found:
                weigh_one(each, rows, found, coefficients)
        rows.clear()


def weigh_one(search: Search, rows: Rows, direction: Mapping[int, Array], coefficients: Coefficients) -> None:
    """Weighs the dual of a search: y as it is, across the heads in float64, and exactly across where little is left."""
    search.weighed += 1
    order = sorted(direction)
    mine = {row: rows[row] for row in order}
    plain = np.concatenate([direction[row] for row in order])
    across = projected(floats_of(mine, order), plain)
    duals = [weighed(mine, coefficients, search.target, in_integers(y, order)) for y in (across, plain)]
    best = max(duals, key=lambda dual: dual.floor(Fraction(search.limits.max_phi)))
    if judged(search, best) or search.lower <= search.limits.allowed(float(np.abs(search.mixing).sum())):
        return
    if judged(search, weighed(mine, coefficients, search.target, refined(mine, order, in_integers(plain, order)))):
        return
    null = null_of(mine, order, in_integers(across, order))
    if null is None:
        return
    exact = weighed(mine, coefficients, search.target, null)
    if not judged(search, exact) and search.limits.per_norm:
        search.inverse = norm_bound(mine, coefficients, search.target)
        judged(search, exact)


def judged(search: Search, dual: Dual) -> bool:
    """Whether the target is refuted by this dual: more is left than counts as none, whatever the norm of the mixing."""
    limits, norm = search.limits, Fraction(search.limits.max_phi)
    within = search.inverse.within(limits) if search.inverse is not None else None
    least = min(norm, within) if within is not None else norm
    allowed = Fraction(limits.eps) + Fraction(limits.per_norm) * least
    floor = dual.floor(norm)
    refutes = (dual.floor(least) if dual.met else floor) > allowed
    if refutes or float(floor) > search.floor or search.dual is None:
        search.floor, search.dual = max(search.floor, down(floor)), dual
    search.refuted = search.refuted or refutes
    return refutes
