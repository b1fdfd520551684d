"""The one solver: whether one Phi serves a group of rows, target by target.

For a target e the question is `min over |phi| <= B of max_q |e_q - phi A_q|`. Least squares starts, cutting planes go
on, several targets in one pass over the rows, and HiGHS proposes; then integers decide. *Holds* rests on a residual
rounded up, *refuted* on the weight of a dual in integers. Rows that are exact are first projected exactly.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import final

import numpy as np

from conv2attn.span.attention_rows import Array, AttentionRows, Limits, Whole
from conv2attn.span.equations import Portion, Targets, portions
from conv2attn.span.least_squares import Factors, factors_of
from conv2attn.span.planes import Plane, Programme, residuals_of, solve
from conv2attn.span.weighing import (
    Coefficients,
    Dual,
    Dyadic,
    ExactRow,
    duals_near,
    exact_rows,
    hot_rows,
    on_all_keys,
    row_left,
    spanned_exactly,
    weighed,
)
from conv2attn.theory.bounds import down, up
from conv2attn.verdicts import Verdict

STEPS = 60
"""Passes after which an interval stays open; 10 to 20 close it as a rule."""
GUESS_ROWS = (1, 4, 16)
"""Numbers of rows from which a dual is guessed; the last guess takes three rows more than there are heads."""
GUESS_NOISE = 1e-9
"""A guessed dual with no more than this left across the heads is rounding."""
NEAR = 0.999
"""A search ends where a dual as near as this to the upper end does not refute."""
KEPT_ENTRIES = 2**22
"""Entries of attention that are kept between the passes, rather than read again."""
PLANES = 6
"""Rows that a pass adds for a mixing; the first adds three more than there are heads, so as to bound all of them."""
NEAR_INTEGERS = 1e-9
"""Distance from the integers within which the rounded mixing is tried too."""


@final
@dataclass(frozen=True, eq=False)
class Decision:
    """One target on one group: every mixing within the norm leaves at least `floor` at some row, and `mixing` leaves at
    most `residual` at each. `excluded` is the norm up to which nothing serves; None for all."""

    verdict: Verdict
    residual: float
    floor: float
    mixing: tuple[float | Fraction, ...]
    proved: bool
    dual: Dyadic | None = None
    excluded: float | None = 0.0
    stability: float | None = None

    @property
    def norm(self) -> float:
        """The sum of the absolute values of the mixing, of fractions rounded up."""
        if any(isinstance(x, Fraction) for x in self.mixing):
            return up(sum((abs(Fraction(x)) for x in self.mixing), Fraction(0)))
        return float(np.abs(np.array(self.mixing, dtype=float)).sum())


def decide_targets(
    attention: AttentionRows, targets: Targets, group: Whole, limits: Limits, wanted: Sequence[int]
) -> tuple[dict[int, Decision], Factors]:
    """The wanted targets on a group of rows, `image * queries + query`, and the least squares of all targets."""
    entries = attention.heads * len(group) * attention.width
    kept = list(portions(attention, targets, group)) if entries <= KEPT_ENTRIES or attention.hot is not None else None

    def read() -> Iterable[Portion]:
        return portions(attention, targets, group) if kept is None else kept

    factors = factors_of(read(), targets.coefficients, limits.max_phi)
    decided: dict[int, Decision] = {}
    rows = exactly_known(attention, targets, group)
    if rows:
        coefficients = Coefficients.exactly(targets.coefficients)
        by_squares = residuals_of(read(), targets, attention.width, factors.bounded, np.arange(len(targets)), 0)[0]
        for j in wanted:
            settled = exactly(attention, rows, coefficients, j, limits, factors.bounded[j], float(by_squares[j]))
            decided |= {} if settled is None else {j: settled}
    left = [j for j in wanted if j not in decided]
    for j, search in search_targets(attention, targets, read, len(group), limits, factors, left).items():
        decided[j] = judged(search, attention, rows, targets, limits)
    return decided, factors


def exactly_known(attention: AttentionRows, targets: Targets, group: Whole) -> dict[int, ExactRow]:
    """The rows of a group that are exact: one-hot ones, or declared; none of floats."""
    if attention.hot is not None:
        return {each.row: each for each in hot_rows(attention, targets, group)}
    return exact_rows(attention, targets, group.tolist()) if attention.exact or attention.one_hot else {}


def exactly(
    attention: AttentionRows,
    rows: dict[int, ExactRow],
    coefficients: Coefficients,
    target: int,
    limits: Limits,
    mixing: Array,
    left: float,
) -> Decision | None:
    """The decision of exact rows within these limits, or None; `left` is the residual of the least-squares mixing."""
    weights, dual = spanned_exactly(rows, coefficients, target)
    if dual is None:
        within = sum(map(abs, weights), Fraction(0)) <= limits.max_phi
        return Decision(Verdict.HOLDS, 0.0, 0.0, weights, True) if within else None
    floor = dual.floor(Fraction(limits.max_phi))
    if floor <= Fraction(limits.eps) + Fraction(limits.per_norm) * Fraction(limits.max_phi):
        return None
    values, low = on_all_keys(dual, rows, attention.width), down(floor)
    return Decision(Verdict.REFUTED, max(left, low), low, tuple(map(float, mixing)), True, values, None)


@final
@dataclass(eq=False)
class Search:
    """One target: the best mixing so far, 0 at first, what it leaves, and what refutes the target, if anything does."""

    target: int
    programme: Programme
    limits: Limits
    mixing: Array
    residual: float
    lower: float = 0.0
    weights: Array | None = None
    floor: Fraction = Fraction(0)
    dual: Dual | None = None
    rows: dict[int, ExactRow] = field(default_factory=dict)
    holds: bool = False
    refuted: bool = False
    weighings: int = 0
    points: list[Array] = field(default_factory=list)

    def saw(self, mixing: Array, residual: float, planes: list[Plane]) -> None:
        """Records the residual and the planes of a mixing."""
        norm = float(np.abs(mixing).sum())
        if norm <= self.limits.max_phi:
            fits = residual <= self.limits.allowed(norm)
            if fits > self.holds or (fits == self.holds and residual < self.residual):
                self.mixing, self.residual, self.holds = mixing, residual, fits
        self.programme.add(planes, mixing)

    def next(self, solution: tuple[Array, float, Array] | None) -> None:
        """Chooses the next mixings to try from the solution of the programme over the planes."""
        self.points = []
        if solution is None:
            return
        mixing, lower, weights = solution
        self.weights, self.lower = weights, max(self.lower, lower)
        self.points = [0.4 * mixing + 0.6 * self.mixing, *with_integers(mixing)]

    @property
    def closed(self) -> bool:
        """Whether the search is over."""
        spent = self.weighings > 0 and self.lower >= NEAR * self.residual
        return self.holds or self.refuted or not self.points or spent or self.lower >= self.residual * (1 - 1e-9)

    def wants_weighing(self, step: int) -> bool:
        """Whether its dual is weighed now: the first, those that are near, and the last."""
        if self.weights is None or self.closed or step == STEPS - 1:
            return self.weights is not None
        near = not self.weighings or self.lower >= NEAR * self.residual
        return self.lower > self.limits.allowed(0.0) and near

    def direction(self, width: int) -> dict[int, Array]:
        """The dual y of the programme, at the rows where it is not zero."""
        assert self.weights is not None
        direction: dict[int, Array] = {}
        for weight, plane in zip(self.weights, self.programme.planes, strict=False):
            if weight > 1e-9:
                direction[plane.row] = direction.get(plane.row, np.zeros(width)) + weight * plane.spread(width)
        return direction

    def guess(self, attention: AttentionRows, targets: Targets) -> bool:
        """Whether the signs of what is left at the worst rows of the start, at few or at many, less their part along
        the heads, are a dual that is worth twice what counts as none."""
        for count in (*GUESS_ROWS, attention.heads + 3):
            self.weights = np.ones(count)
            direction = self.direction(attention.width)
            places = [divmod(row, targets.places.shape[1]) for row in direction]
            heads = np.concatenate([attention.read(image, np.array([query]))[:, 0] for image, query in places], 1)
            along = np.concatenate(list(direction.values()))
            across = (along - heads.T @ np.linalg.lstsq(heads.T, along, rcond=None)[0]).reshape(len(places), -1)
            target_rows = targets.block(np.array([query for _, query in places]), attention.width)[self.target]
            peak = float(np.abs(across).max(-1).sum())
            floor = float((across * target_rows).sum()) / peak if peak > GUESS_NOISE * count else 0.0
            if floor > 2 * self.limits.allowed(self.limits.max_phi):
                return True
        self.weights = None
        return False

    def weigh(
        self,
        attention: AttentionRows,
        targets: Targets,
        coefficients: Coefficients,
        exact: dict[int, ExactRow],
    ) -> None:
        """Weighs the duals near the programme's, until one refutes."""
        self.weighings += 1
        direction = self.direction(attention.width)
        if not direction:
            return
        order = sorted(direction)
        if attention.heads * attention.width * len(exact) > KEPT_ENTRIES:
            exact.clear()
        exact |= exact_rows(attention, targets, [row for row in order if row not in exact])
        self.rows = {row: exact[row] for row in order}
        eps, norm = Fraction(self.limits.eps), Fraction(self.limits.max_phi)
        allowed = eps + Fraction(self.limits.per_norm) * norm
        for place, values in enumerate(duals_near(self.rows, order, np.concatenate([direction[r] for r in order]))):
            dual = weighed(self.rows, coefficients, self.target, values)
            floor = dual.floor(norm)
            self.refuted = floor > allowed
            if floor > self.floor or self.dual is None:
                self.floor, self.dual = max(floor, self.floor), dual
            if self.refuted or (place == 1 and self.lower <= self.limits.allowed(float(np.abs(self.mixing).sum()))):
                return


def with_integers(mixing: Array) -> list[Array]:
    """A mixing, and its integers where it is within rounding of them."""
    near = np.round(mixing)
    return [mixing, near] if 0 < np.abs(near - mixing).max() <= NEAR_INTEGERS else [mixing]


def search_targets(
    attention: AttentionRows,
    targets: Targets,
    read: Callable[[], Iterable[Portion]],
    rows: int,
    limits: Limits,
    factors: Factors,
    wanted: Sequence[int],
) -> dict[int, Search]:
    """The search for each wanted target on so many rows, run to its end."""
    if not wanted:
        return {}
    wide = np.sqrt(rows) / factors.singular[factors.kept]
    lengths = np.minimum(wide, limits.max_phi)
    frame = (factors.directions[factors.kept] * lengths[:, None]).T
    idle = factors.directions[~factors.kept].T
    searches = []
    for j in wanted:
        programme = Programme(factors.bounded[j], frame, 1.0, limits.max_phi, wide / lengths, idle)
        largest = float(targets.largest[j])
        start = Search(j, programme, limits, np.zeros(attention.heads), largest, holds=largest <= limits.allowed(0.0))
        start.points = with_integers(factors.bounded[j])
        searches.append(start)
    coefficients = Coefficients.exactly(targets.coefficients)
    exact: dict[int, ExactRow] = {}
    open_still = list(searches)
    for step in range(STEPS):
        points = [(each, point) for each in open_still for point in each.points]
        if not points:
            break
        places, mixings = np.array([each.target for each, _ in points]), np.array([point for _, point in points])
        most = PLANES if step else attention.heads + 3
        residuals, planes = residuals_of(read(), targets, attention.width, mixings, places, most)
        for (each, point), residual, found_planes in zip(points, residuals, planes, strict=True):
            each.saw(point, float(residual), found_planes)
        if not step:
            for each in open_still:
                each.programme.scale(each.residual or 1.0)
                if not each.holds and each.guess(attention, targets):
                    each.weigh(attention, targets, coefficients, exact)
                    each.weighings = 0
        open_still = [each for each in open_still if not each.holds and not each.refuted]
        for each, answer in zip(open_still, solve([each.programme for each in open_still]), strict=True):
            each.next(answer)
        for each in open_still:
            if each.wants_weighing(step):
                each.weigh(attention, targets, coefficients, exact)
        open_still = [each for each in open_still if not each.closed]
    return {each.target: each for each in searches}


def judged(
    search: Search, attention: AttentionRows, rows: dict[int, ExactRow], targets: Targets, limits: Limits
) -> Decision:
    """The decision at the end of a search; on exact rows the residual is computed once more in fractions."""
    if rows:
        coefficients = Coefficients.exactly(targets.coefficients)

        def left(mixing: Array) -> Fraction:
            return max(row_left(row, coefficients, search.target, mixing.tolist()) for row in rows.values())

        exactly_left, near = left(search.mixing), np.round(search.mixing)
        if exactly_left and np.abs(near - search.mixing).max() <= NEAR_INTEGERS and not left(near):
            exactly_left, search.mixing = Fraction(0), near
        norm = float(np.abs(search.mixing).sum())
        search.residual = up(exactly_left)
        search.holds = exactly_left <= Fraction(limits.allowed(norm)) and norm <= limits.max_phi
    weights, floor = tuple(map(float, search.mixing)), min(down(search.floor), search.residual)
    if search.holds:
        return Decision(Verdict.HOLDS, search.residual, 0.0, weights, bool(rows))
    dual = search.dual
    excluded = None if dual is None else dual.excludes(Fraction(limits.eps), Fraction(limits.per_norm))
    reach = 0.0 if dual is None else None if excluded is None else down(excluded)
    if not search.refuted or dual is None:
        return Decision(Verdict.UNDECIDED, search.residual, floor, weights, bool(rows), None, reach)
    values = on_all_keys(dual, search.rows, attention.width)
    evidence = (values, reach, stability(dual, limits))
    return Decision(Verdict.REFUTED, search.residual, floor, weights, bool(rows), *evidence)


def stability(dual: Dual, limits: Limits) -> float:
    """How far every entry may move, as a share of itself, before the dual that refutes fails."""
    norm = Fraction(limits.max_phi)
    spare = dual.gain - norm * dual.attended - (Fraction(limits.eps) + Fraction(limits.per_norm) * norm) * dual.peak
    return down(spare / (norm * dual.weight)) if dual.weight else 0.0
