"""The one solver: whether one Phi serves a group of rows, target by target.

For a target e the question is `min over |phi| <= B of max_q |e_q - phi A_q|`, a linear programme. What decides it as a
rule costs no programme: the phi of least squares leaves little at every row, or what it leaves is itself a dual that
refutes every phi. Where the answer depends on less than a factor, as near an `eps` of the user's, one call of HiGHS on
the worst rows proposes a better phi and a better dual. Whoever proposes, integers decide: *holds* rests on a residual
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
from conv2attn.span.residuals import left_by, residuals_of
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

GUESS_ROWS = (1, 4, 16)
"""Numbers of the worst rows on which what least squares leaves is tried as a dual; the last guess takes all of them."""
GUESS_NOISE = 1e-9
"""A guessed dual with no more than this left across the heads is rounding."""
WORST_ENTRIES = 2**14
"""Entries of a head at the worst rows, which are three more than there are heads at least: so many bound all of Phi."""
KEPT_ENTRIES = 2**22
"""Entries of attention that are kept between the passes, rather than read again."""
NOISE = 256
"""A residual of at most this many times what counts as none may be rounding of least squares, which is then refined."""
NEAR_INTEGERS = 1e-9
"""Distance from the integers within which the rounded mixing is tried too."""
LARGEST = 1e3
"""Bounds on the norm this much above that of the start bind nobody, and variables of the programme end there."""


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
    attention: AttentionRows, targets: Targets, group: Whole, limits: Limits, wanted: Sequence[int], tight: bool
) -> tuple[dict[int, Decision], Factors]:
    """The wanted targets on a group of rows, `image * queries + query`, and the least squares of all targets.

    Where it is `tight`, a linear programme is asked about targets that least squares leaves open.
    """
    # Small groups are read once and kept. Large ones are read again in each pass, since attention is computed from
    # positions in chunks, and would not fit.
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
    undecided = [j for j in wanted if j not in decided]
    for search in search_targets(attention, targets, read, limits, factors, undecided, tight):
        decided[search.target] = judged(search, attention, rows, targets, limits)
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
    """One target: the best mixing so far, 0 at first, what it leaves, and the dual that proves the highest floor."""

    target: int
    limits: Limits
    mixing: Array
    residual: float
    holds: bool
    rows: dict[int, ExactRow] = field(default_factory=dict)
    dual: Dual | None = None
    floor: Fraction = Fraction(0)

    @property
    def refuted(self) -> bool:
        """Whether the floor is above what counts as none at the largest norm."""
        norm = Fraction(self.limits.max_phi)
        return self.floor > Fraction(self.limits.eps) + Fraction(self.limits.per_norm) * norm

    def offer(self, mixing: Array, residual: float) -> None:
        """Takes a mixing with its residual if it is better: within the norm, and it holds or leaves less."""
        norm = float(np.abs(mixing).sum())
        if norm <= self.limits.max_phi:
            fits = residual <= self.limits.allowed(norm)
            if fits > self.holds or (fits == self.holds and residual < self.residual):
                self.mixing, self.residual, self.holds = mixing, residual, fits

    def weigh(self, attention: AttentionRows, targets: Targets, order: Whole, y: Array) -> None:
        """Weighs the duals near y (rows * keys) in integers, until one refutes."""
        # The rows are sorted, since a dual names them in this order in a certificate.
        sorted_order = np.sort(order)
        y = y.reshape(len(order), -1)[np.argsort(order)].ravel()
        rows = exact_rows(attention, targets, sorted_order.tolist())
        coefficients = Coefficients.exactly(targets.coefficients)
        for values in duals_near(rows, sorted_order.tolist(), y):
            dual = weighed(rows, coefficients, self.target, values)
            floor = dual.floor(Fraction(self.limits.max_phi))
            if floor > self.floor or self.dual is None:
                self.floor, self.dual, self.rows = max(floor, self.floor), dual, rows
            if self.refuted:
                return


def with_integers(mixing: Array) -> list[Array]:
    """A mixing, and its integers where it is within rounding of them."""
    near = np.round(mixing)
    return [mixing, near] if 0 < np.abs(near - mixing).max() <= NEAR_INTEGERS else [mixing]


@final
@dataclass(frozen=True, eq=False)
class WorstRows:
    """The rows where the mixing of least squares leaves most of one target, worst first.

    `order` (rows), `heads` (heads, rows, keys), the target and its remainder `e - phi A` (rows, keys).
    """

    order: Whole
    heads: Array
    target_rows: Array
    remainder: Array

    @staticmethod
    def of(attention: AttentionRows, targets: Targets, target: int, order: Whole, mixing: Array) -> "WorstRows":
        """Reads the rows `image * queries + query`."""
        images, queries = np.divmod(order, targets.places.shape[1])
        heads = np.empty((attention.heads, len(order), attention.width))
        for image in np.unique(images):
            chosen = np.flatnonzero(images == image)
            chosen = chosen[np.argsort(queries[chosen])]  # readers take a range of queries as a slice
            for start in range(0, len(chosen), attention.step):
                few = chosen[start : start + attention.step]
                heads[:, few] = attention.read(int(image), queries[few])
        target_rows = targets.block(queries, attention.width)[target]
        return WorstRows(order, heads, target_rows, target_rows - np.tensordot(mixing, heads, 1))

    def first(self, count: int) -> "WorstRows":
        """The `count` rows with the most left."""
        return WorstRows(self.order[:count], self.heads[:, :count], self.target_rows[:count], self.remainder[:count])

    def own_dual(self, max_phi: float) -> tuple[float, Array]:
        """What is left here as a dual y (rows * keys), as it is or by its signs, and the floor that it promises.

        Over all rows, what least squares leaves is orthogonal to the heads, so that it meets no phi at all. On the
        worst rows alone it is projected once again, or kept: where heads nearly depend on each other, the projection
        takes what no phi within the norm can reach. Signs are better where rows have much left at few keys.
        """
        heads = self.heads.reshape(len(self.heads), -1)
        target, remainder = self.target_rows.ravel(), self.remainder.ravel()
        best, floor = remainder, -np.inf
        for y in (np.sign(remainder), remainder / (np.abs(remainder).max(initial=0.0) or 1.0)):
            across = y - heads.T @ np.linalg.lstsq(heads.T, y, rcond=None)[0]
            # The projection is made to more digits later: what it meets in float64 is rounding.
            for part, meets in ((across, 0.0), (y, float(np.abs(heads @ y).max()))):
                peak = float(np.abs(part).reshape(len(self.order), -1).max(-1).sum())
                if peak <= GUESS_NOISE * len(self.order):
                    continue
                promised = (float(part @ target) - max_phi * meets) / peak
                if promised > floor:
                    best, floor = y, promised
        return floor, best


def search_targets(
    attention: AttentionRows,
    targets: Targets,
    read: Callable[[], Iterable[Portion]],
    limits: Limits,
    factors: Factors,
    wanted: Sequence[int],
    tight: bool,
) -> list[Search]:
    """The search for each wanted target, run to its end."""
    searches = [
        Search(j, limits, np.zeros(attention.heads), float(targets.largest[j]), targets.largest[j] <= limits.allowed(0))
        for j in wanted
    ]
    # The dual of the programme lives on at most heads + 1 rows (Caratheodory), so that the worst rows alone can refute.
    most = max(attention.heads + 3, WORST_ENTRIES // attention.width)
    starts = [(each, mixing) for each in searches for mixing in with_integers(factors.bounded[each.target])]
    worst = offered(starts, attention, targets, read, most)
    near = [each for each in searches if not each.holds and each.residual <= NOISE * limits.allowed(0)]
    offered(refined_squares(near, targets, read, factors), attention, targets, read, 0)
    open_still = [each for each in searches if not each.holds]
    better: list[tuple[Search, Array]] = []
    # Each target has worst rows of its own, and most are refuted by few of them.
    for each in open_still:
        start = factors.bounded[each.target]
        rows = WorstRows.of(attention, targets, each.target, worst[each.target], start)
        refute_by_squares(each, attention, targets, rows)
        # Where the norm binds, the mixing of least squares is no longer the nearest, and says less of the others.
        binds = float(np.abs(factors.plain[each.target]).sum()) > limits.max_phi
        if (tight or binds) and not each.refuted:
            answer = programme(rows, start, factors, limits.max_phi)
            if answer is not None:
                mixing, y = answer
                better += [(each, near) for near in with_integers(mixing)]
                each.weigh(attention, targets, rows.order, y)
    offered([(each, mixing) for each, mixing in better if not each.refuted], attention, targets, read, 0)
    return searches


def refined_squares(
    searches: Sequence[Search], targets: Targets, read: Callable[[], Iterable[Portion]], factors: Factors
) -> list[tuple[Search, Array]]:
    """The mixings of some searches after one step of iterative refinement (Bjorck 1967).

    The factors lose some digits in products of columns; what is left of a target that holds is rounding of them.
    """
    if not searches:
        return []
    places, mixings = np.array([each.target for each in searches]), np.array([each.mixing for each in searches])
    met = np.zeros_like(mixings)
    for portion in read():
        remainder = left_by(portion, targets.coefficients[places], mixings) * portion.times[:, None]
        met += np.tensordot(remainder, portion.attention, ((1, 2), (1, 2)))
    # Along directions that are rounding a step would be noise over noise.
    directions = factors.directions[factors.kept]
    steps = met @ directions.T / factors.singular[factors.kept] ** 2 @ directions
    return list(zip(searches, mixings + steps, strict=True))


def offered(
    candidates: Sequence[tuple[Search, Array]],
    attention: AttentionRows,
    targets: Targets,
    read: Callable[[], Iterable[Portion]],
    most: int,
) -> dict[int, Whole]:
    """Offers mixings to their searches, in one pass over the rows; the `most` worst rows of each target's first one."""
    if not candidates:
        return {}
    wanted, mixings = np.array([each.target for each, _ in candidates]), np.array([mixing for _, mixing in candidates])
    residuals, worst = residuals_of(read(), targets, attention.width, mixings, wanted, most)
    for (each, mixing), residual in zip(candidates, residuals, strict=True):
        each.offer(mixing, float(residual))
    return dict(reversed(list(zip(wanted.tolist(), worst, strict=True))))


def refute_by_squares(search: Search, attention: AttentionRows, targets: Targets, rows: WorstRows) -> None:
    """Weighs what least squares leaves at few of the worst rows, and at more, until it refutes."""
    allowed = search.limits.allowed(search.limits.max_phi)
    best: tuple[float, Whole, Array] | None = None
    for count in (*GUESS_ROWS, len(rows.order)):
        few = rows.first(count)
        floor, y = few.own_dual(search.limits.max_phi)
        # A floor of twice what counts as none leaves no doubt, save where the projection took all but rounding.
        if floor > 2 * allowed:
            search.weigh(attention, targets, few.order, y)
            if search.refuted:
                return
        elif best is None or floor > best[0]:
            best = floor, few.order, y
        if count >= len(rows.order):
            break
    if best is not None:
        search.weigh(attention, targets, *best[1:])


def programme(rows: WorstRows, start: Array, factors: Factors, max_phi: float) -> tuple[Array, Array] | None:
    """The mixing that is best at these rows alone, and the dual y (rows * keys) that says so; None where HiGHS fails.

    Minimise t over x, s, t with `|remainder - A frame x| <= s` at each key and `sum of s <= t` at each row, where the
    mixing is `start + frame x + idle z`. Nothing rests on the answer but which mixing and which dual to look at.

    Source: Huangfu and Hall 2018 (HiGHS).
    """
    from scipy.optimize import linprog
    from scipy.sparse import bmat, csr_array, eye_array, kron

    heads, count = len(start), rows.remainder.size
    unit = float(np.abs(rows.remainder).sum(-1).max()) or 1.0
    # HiGHS meets constraints to 1e-10 at best. So a step of one variable moves the rows by about what is left of them,
    # along the singular directions of the attention: heads that nearly depend on each other differ by very little.
    lengths = np.minimum(np.sqrt(len(rows.order)) / factors.singular[factors.kept], max_phi / unit)
    frame = (factors.directions[factors.kept] * lengths[:, None]).T * unit
    idle = factors.directions[~factors.kept].T * max_phi
    moved = csr_array(rows.heads.reshape(heads, -1).T @ frame / unit)
    remainder, eye = rows.remainder.ravel() / unit, eye_array(count)
    of_rows = kron(eye_array(len(rows.order)), np.ones((1, rows.remainder.shape[1])))
    column = csr_array(np.ones((len(rows.order), 1)))
    blocks = [[-moved, -eye, None], [moved, -eye, None], [None, of_rows, -column]]
    side = np.concatenate([-remainder, remainder, np.zeros(len(rows.order))])
    costs = np.zeros(moved.shape[1] + count + 1)
    costs[-1] = 1  # of t, the last variable
    bounds: list[tuple[float, float | None]] = [(-LARGEST, LARGEST)] * moved.shape[1] + [(0, None)] * (count + 1)
    if max_phi < LARGEST * max(1.0, float(np.abs(start).sum())):
        # The norm may bind: |start + frame x + idle z| <= w, and the sum of w is at most the bound, all in its unit.
        along, across = csr_array(frame / max_phi), csr_array(idle / max_phi)
        blocks = [[*row, None, None] for row in blocks]
        blocks += [
            [along, None, None, across, -eye_array(heads)],
            [-along, None, None, -across, -eye_array(heads)],
            [None, None, None, None, csr_array(np.ones((1, heads)))],
        ]
        side = np.concatenate([side, -start / max_phi, start / max_phi, [1.0]])
        costs = np.concatenate([costs, np.zeros(idle.shape[1] + heads)])
        bounds += [(-2.0, 2.0)] * idle.shape[1] + [(0, None)] * heads
    near = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}  # the least that HiGHS takes
    answer = linprog(costs, bmat(blocks, format="csr"), side, bounds=bounds, method="highs", options=near)
    if answer.status != 0:
        return None
    steps, rest = answer.x[: moved.shape[1]], answer.x[moved.shape[1] + count + 1 :]
    mixing: Array = start + frame @ steps
    if len(rest):
        mixing = mixing + idle @ rest[: idle.shape[1]]
    size = float(np.abs(mixing).sum())
    # The norm is met to the tolerance of HiGHS alone; a mixing beyond it would not be counted.
    if size > max_phi:
        mixing = mixing * (max_phi * (1 - 1e-15) / size)
    # A multiplier each of `-moved x - s <= -remainder` and of `moved x - s <= remainder`: their difference is the dual.
    weights = answer.ineqlin.marginals
    return mixing, np.asarray(weights[count : 2 * count] - weights[:count])


def judged(
    search: Search, attention: AttentionRows, rows: dict[int, ExactRow], targets: Targets, limits: Limits
) -> Decision:
    """The decision at the end of a search; on exact rows the residual is computed once more in fractions."""
    if rows:
        coefficients = Coefficients.exactly(targets.coefficients)

        def left(mixing: Array) -> Fraction:
            return max(row_left(row, coefficients, search.target, mixing.tolist()) for row in rows.values())

        # The residual of floats has a margin for rounding. Exact rows have none: theirs is counted in fractions.
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
    # If every entry moves by a share s, <A, y> moves by s <A, |y|> at most: the dual refutes up to where that is
    # the spare.
    spare = dual.gain - norm * dual.attended - (Fraction(limits.eps) + Fraction(limits.per_norm) * norm) * dual.peak
    return down(spare / (norm * dual.weight)) if dual.weight else 0.0
