"""The one solver: whether one Phi serves a group of rows, target by target.

For a target e the question is `min over |phi|_1 <= B of max_q |e_q - phi A_q|_1`, a linear programme. Most targets are
decided without solving it: the phi of least squares has a small residual at every row, or its remainder is itself a
dual that refutes every phi. If the answer lies within a small factor of the limit, such as an `eps` that the user
chose, one call of HiGHS on the worst rows proposes a better phi and a better dual. Every proposal is checked: *holds*
rests on a residual rounded up, *refuted* on the floor of a dual in integers. Exact rows are first projected exactly.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import final

import numpy as np

from conv2attn.span.attention_rows import Array, AttentionRows, Limits, Whole
from conv2attn.span.equations import Portion, Targets, portions
from conv2attn.span.least_squares import Factors, factors_of, remainders_of, residuals_of
from conv2attn.span.weighing import (
    Coefficients,
    Dual,
    Dyadic,
    ExactRow,
    duals_near,
    exact_rows,
    hot_rows,
    on_all_keys,
    row_residual,
    spanned_exactly,
    weighed,
)
from conv2attn.theory.bounds import down, up
from conv2attn.verdicts import Verdict

GUESS_ROWS = (1, 4, 16)
"""Numbers of worst rows on which the remainder of least squares is tried as a dual; the last guess takes all rows."""
GUESS_NOISE = 1e-9
"""A guessed dual whose projection off the heads is at most this, per row, is rounding."""
WORST_ENTRIES = 2**14
"""Entries per head of the worst rows that are read; at least three rows more than heads, since a dual may need one."""
KEPT_ENTRIES = 2**22
"""Attention of at most this many entries is kept between the passes, and not read again."""
NOISE = 256
"""A residual up to this many times the limit may be rounding of least squares, whose mixing is then refined."""
NEAR_INTEGERS = 1e-9
"""A mixing within this distance of integers is also tried rounded to them."""
LARGEST = 1e3
"""The norm counts as unbounded from this many times the norm of the start; also the box of the programme's steps."""


@final
@dataclass(frozen=True, eq=False)
class Decision:
    """The verdict on one target in one group of rows, with both bounds.

    Every mixing within the norm has a residual of at least `floor` at some row, and `mixing` has at most `residual` at
    each. `excluded` is the norm up to which no mixing serves; None for every norm.
    """

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
        """The sum of the absolute values of the mixing; for fractions, rounded up."""
        if any(isinstance(x, Fraction) for x in self.mixing):
            return up(sum((abs(Fraction(x)) for x in self.mixing), Fraction(0)))
        return float(np.abs(np.array(self.mixing, dtype=float)).sum())


def decide_targets(
    attention: AttentionRows, targets: Targets, group: Whole, limits: Limits, wanted: Sequence[int], tight: bool
) -> tuple[dict[int, Decision], Factors]:
    """The decisions on the wanted targets in a group of rows `image * queries + query`; and least squares of all.

    If `tight`, a linear programme is solved for targets that least squares leaves open.
    """
    # Small groups are read once and kept. Large ones are read again in each pass, since attention is computed from
    # positions in chunks, and would not fit.
    entries = attention.heads * len(group) * attention.width
    kept = list(portions(attention, targets, group)) if entries <= KEPT_ENTRIES or attention.hot is not None else None

    def read() -> Iterable[Portion]:
        return portions(attention, targets, group) if kept is None else kept

    factors = factors_of(read(), targets.coefficients, limits.max_phi)
    decided: dict[int, Decision] = {}
    # Exact rows have an exact answer, a projection in fractions. Where `max_phi` or `eps` binds there is none, and the
    # search goes on as for floats.
    rows = exact_rows_of(attention, targets, group)
    if rows:
        coefficients = Coefficients.exactly(targets.coefficients)
        residuals, _ = residuals_of(read(), targets, attention.width, factors.bounded, np.arange(len(targets)), 0)
        for j in wanted:
            decision = decide_exactly(attention, rows, coefficients, j, limits, factors.bounded[j], float(residuals[j]))
            decided |= {} if decision is None else {j: decision}
    undecided = [j for j in wanted if j not in decided]
    for search in search_targets(attention, targets, read, limits, factors, undecided, tight):
        decided[search.target] = judged(search, attention, rows, targets, limits)
    return decided, factors


def exact_rows_of(attention: AttentionRows, targets: Targets, group: Whole) -> dict[int, ExactRow]:
    """The rows of a group in exact numbers if they are one-hot or declared exact; empty for floats."""
    if attention.hot is not None:
        return {each.row: each for each in hot_rows(attention, targets, group)}
    return exact_rows(attention, targets, group.tolist()) if attention.exact or attention.one_hot else {}


def decide_exactly(
    attention: AttentionRows,
    rows: dict[int, ExactRow],
    coefficients: Coefficients,
    target: int,
    limits: Limits,
    mixing: Array,
    residual: float,
) -> Decision | None:
    """The decision on exact rows within these limits, or None; `residual` is that of the least-squares `mixing`."""
    weights, dual = spanned_exactly(rows, coefficients, target)
    if dual is None:
        within = sum(map(abs, weights), Fraction(0)) <= limits.max_phi
        return Decision(Verdict.HOLDS, 0.0, 0.0, weights, True) if within else None
    # The remainder is orthogonal to the heads, so that its floor is the same for every norm. Exact rows have `per_norm`
    # 0: what refutes within one norm refutes within all.
    floor = dual.floor(Fraction(limits.max_phi))
    allowed = Fraction(limits.eps) + Fraction(limits.per_norm) * Fraction(limits.max_phi)
    if floor <= allowed:
        return None
    values, low = on_all_keys(dual, rows, attention.width), down(floor)
    return Decision(Verdict.REFUTED, max(residual, low), low, tuple(map(float, mixing)), True, values, None)


@final
@dataclass(eq=False)
class Search:
    """The search for one target: the best mixing so far (first 0), its residual, and the best dual."""

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
        """Whether the floor is above the residual that counts as zero at the largest norm."""
        # In fractions: a limit in floats could round to a number below the floor, and the target would be refuted
        # wrongly.
        norm = Fraction(self.limits.max_phi)
        return self.floor > Fraction(self.limits.eps) + Fraction(self.limits.per_norm) * norm

    def offer(self, mixing: Array, residual: float) -> None:
        """Takes a mixing with its residual if it is within the norm and better: it holds, or has a smaller residual."""
        # The limit grows with the norm: a mixing that holds may have a larger residual than one that does not.
        norm = float(np.abs(mixing).sum())
        if norm <= self.limits.max_phi:
            fits = residual <= self.limits.allowed(norm)
            if fits > self.holds or (fits == self.holds and residual < self.residual):
                self.mixing, self.residual, self.holds = mixing, residual, fits

    def weigh(self, attention: AttentionRows, targets: Targets, order: Whole, y: Array) -> None:
        """Weighs the integer duals near y (rows * keys), until one refutes; keeps the one with the highest floor."""
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
    """A mixing, and that rounded to integers if it is within rounding of them."""
    # A head that is a shift has a mixing of 0 and 1, whose products with attention are exact and whose residual is 0.
    near = np.round(mixing)
    return [mixing, near] if 0 < np.abs(near - mixing).max() <= NEAR_INTEGERS else [mixing]


@final
@dataclass(frozen=True, eq=False)
class WorstRows:
    """The rows with the largest residuals of the mixing of least squares for one target, worst first.

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
            # In the order of queries, since readers take consecutive ones as a slice and not as a copy.
            chosen = chosen[np.argsort(queries[chosen])]
            for start in range(0, len(chosen), attention.step):
                few = chosen[start : start + attention.step]
                heads[:, few] = attention.read(int(image), queries[few])
        target_rows = targets.block(queries, attention.width)[target]
        return WorstRows(order, heads, target_rows, target_rows - np.tensordot(mixing, heads, 1))

    def first(self, count: int) -> "WorstRows":
        """The `count` rows with the largest residuals."""
        return WorstRows(self.order[:count], self.heads[:, :count], self.target_rows[:count], self.remainder[:count])

    def own_dual(self, max_phi: float) -> tuple[float, Array]:
        """The best cheap dual y (rows * keys), from the remainder of least squares, and its floor in floats.

        Two duals are tried, the signs of the remainder and the remainder itself, each projected off the heads and
        unprojected. The floor is in float64, and proves nothing.
        """
        heads = self.heads.reshape(len(self.heads), -1)
        target, remainder = self.target_rows.ravel(), self.remainder.ravel()
        # Signs are the dual of a 1-norm, and better if the remainder of a row is large at few keys. The remainder is
        # the dual of least squares: over all rows it is orthogonal to the heads.
        signs = np.sign(remainder)
        scaled = remainder / (np.abs(remainder).max(initial=0.0) or 1.0)
        best, floor = remainder, -np.inf
        for y in (signs, scaled):
            # On the worst rows alone y is not orthogonal to the heads. Projected, it refutes mixings of every norm.
            # Unprojected, it loses `max_phi` times its inner products, and yet is better where heads nearly depend on
            # each other: the projection takes what no mixing within the norm can reach.
            null_vector = y - heads.T @ np.linalg.lstsq(heads.T, y, rcond=None)[0]
            # The projection is made to more digits later: its inner products with heads in float64 are rounding.
            for dual, attended in ((null_vector, 0.0), (y, float(np.abs(heads @ y).max()))):
                peaks = np.abs(dual).reshape(len(self.order), -1).max(-1)
                if peaks.sum() <= GUESS_NOISE * len(self.order):
                    continue
                promised = (float(dual @ target) - max_phi * attended) / float(peaks.sum())
                # y is kept in either case: `duals_near` projects it again, and tries both.
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
    """The search for each wanted target, run to its end.

    Four steps, each for the targets that are still undecided: the mixing of least squares, one refinement of it, its
    remainder as a dual, and the linear programme on the worst rows.
    """
    # Every search begins with the mixing 0, whose remainder is the target, and which is within every norm.
    zero = np.zeros(attention.heads)
    searches = [
        Search(j, limits, zero, float(targets.largest[j]), targets.largest[j] <= limits.allowed(0)) for j in wanted
    ]
    # Some best dual is zero on all but heads + 1 rows (Caratheodory), so that few rows can refute. Taking the worst
    # rows of least squares for these is a guess: a dual on them is checked, and a target without one stays open.
    most = max(attention.heads + 3, WORST_ENTRIES // attention.width)
    starts = [(search, mixing) for search in searches for mixing in with_integers(factors.bounded[search.target])]
    worst = offer_all(starts, attention, targets, read, most)
    # A residual just above the limit may be the rounding of the factors: a step of refinement costs one pass for all.
    near = [search for search in searches if not search.holds and search.residual <= NOISE * limits.allowed(0)]
    offer_all(refined_squares(near, targets, read, factors), attention, targets, read, 0)
    better: list[tuple[Search, Array]] = []
    # Each target has worst rows of its own, and most are refuted by few of them.
    for search in searches:
        if search.holds:
            continue
        start = factors.bounded[search.target]
        rows = WorstRows.of(attention, targets, search.target, worst[search.target], start)
        refute_by_squares(search, attention, targets, rows)
        # If the norm binds, the bounded mixing is not a projection of the target, and its remainder not a good dual.
        binds = float(np.abs(factors.plain[search.target]).sum()) > limits.max_phi
        if (tight or binds) and not search.refuted:
            answer = programme(rows, start, factors, limits.max_phi)
            if answer is not None:
                mixing, y = answer
                better += [(search, candidate) for candidate in with_integers(mixing)]
                search.weigh(attention, targets, rows.order, y)
    # A mixing that is best at the worst rows has to be checked at all rows, in one more pass for all targets.
    offer_all([(search, mixing) for search, mixing in better if not search.refuted], attention, targets, read, 0)
    return searches


def refined_squares(
    searches: Sequence[Search], targets: Targets, read: Callable[[], Iterable[Portion]], factors: Factors
) -> list[tuple[Search, Array]]:
    """The mixings of some searches after one step of iterative refinement (Bjorck 1967).

    The factors lose some digits in products of columns, and the residual of a target that holds is this rounding.
    """
    if not searches:
        return []
    wanted = np.array([search.target for search in searches])
    mixings = np.array([search.mixing for search in searches])
    # The remainder is formed from the attention itself, not from the factors: its inner products with the heads, which
    # vanish at the exact mixing, are the right side of the normal equations for the step.
    along_heads = np.zeros_like(mixings)
    for portion in read():
        remainder = remainders_of(portion, targets.coefficients[wanted], mixings) * portion.times[:, None]
        along_heads += np.tensordot(remainder, portion.attention, ((1, 2), (1, 2)))
    # Along directions of rounding size the step would be a quotient of two rounding errors.
    directions = factors.directions[factors.kept]
    steps = along_heads @ directions.T / factors.singular[factors.kept] ** 2 @ directions
    return list(zip(searches, mixings + steps, strict=True))


def offer_all(
    candidates: Sequence[tuple[Search, Array]],
    attention: AttentionRows,
    targets: Targets,
    read: Callable[[], Iterable[Portion]],
    most: int,
) -> dict[int, Whole]:
    """Offers mixings to their searches, in one pass over the rows; returns for each target the `most` worst rows of its
    first mixing."""
    if not candidates:
        return {}
    wanted = np.array([search.target for search, _ in candidates])
    mixings = np.array([mixing for _, mixing in candidates])
    residuals, worst = residuals_of(read(), targets, attention.width, mixings, wanted, most)
    for (search, mixing), residual in zip(candidates, residuals, strict=True):
        search.offer(mixing, float(residual))
    # A dictionary keeps the last of equal keys: reversed, the rows are those of the mixing of least squares, and not of
    # its rounding to integers.
    return dict(reversed(list(zip(wanted.tolist(), worst, strict=True))))


def refute_by_squares(search: Search, attention: AttentionRows, targets: Targets, rows: WorstRows) -> None:
    """Weighs the remainder of least squares as a dual, at few of the worst rows first, then at more of them."""
    # The cost of exact weighing grows with the rows, and few rows refute most targets.
    allowed = search.limits.allowed(search.limits.max_phi)
    best: tuple[float, Whole, Array] | None = None
    for count in (*GUESS_ROWS, len(rows.order)):
        few = rows.first(count)
        floor, y = few.own_dual(search.limits.max_phi)
        # A floor in floats of twice the limit is worth the exact weighing, which may still show that it was rounding.
        # Of smaller floors only the largest is weighed, at the end.
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
    """The mixing that is best at these rows alone, and its dual y (rows * keys); None if HiGHS fails.

    Minimise t over x, s, t with `|remainder - A frame x| <= s` at each key and `sum of s <= t` at each row, where the
    mixing is `start + frame x + idle z`. The answer only proposes: both results are checked exactly.

    Source: Huangfu and Hall 2018 (HiGHS).
    """
    from scipy.optimize import linprog
    from scipy.sparse import bmat, csr_array, eye_array, kron

    heads, count = len(start), rows.remainder.size
    unit = float(np.abs(rows.remainder).sum(-1).max()) or 1.0
    # HiGHS meets constraints to 1e-10 at best, so that variables must be of one size. A unit step of one of them moves
    # the rows by about the remainder, along a singular direction of the attention: in steps along single heads, those
    # that nearly depend on each other would need huge steps of opposite signs.
    lengths = np.minimum(np.sqrt(len(rows.order)) / factors.singular[factors.kept], max_phi / unit)
    frame = (factors.directions[factors.kept] * lengths[:, None]).T * unit
    # Directions that move no row still move the norm: they may shorten the mixing.
    idle = factors.directions[~factors.kept].T * max_phi
    moved = csr_array(rows.heads.reshape(heads, -1).T @ frame / unit)
    remainder, eye = rows.remainder.ravel() / unit, eye_array(count)
    of_rows = kron(eye_array(len(rows.order)), np.ones((1, rows.remainder.shape[1])))
    column = csr_array(np.ones((len(rows.order), 1)))
    #       x     s       t
    #    -moved  -1       .   <=  -remainder
    #     moved  -1       .   <=   remainder
    #       .   of rows  -1   <=   0
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
    # The dual is the difference of two multipliers, of `-moved x - s <= -remainder` and of `moved x - s <= remainder`.
    weights = answer.ineqlin.marginals
    return mixing, np.asarray(weights[count : 2 * count] - weights[:count])


def judged(
    search: Search, attention: AttentionRows, rows: dict[int, ExactRow], targets: Targets, limits: Limits
) -> Decision:
    """The decision at the end of a search; on exact rows the residual is computed again in fractions."""
    if rows:
        coefficients = Coefficients.exactly(targets.coefficients)

        def exact_residual(mixing: Array) -> Fraction:
            return max(row_residual(row, coefficients, search.target, mixing.tolist()) for row in rows.values())

        # The residual of floats has a margin for rounding. Exact rows have none: their residual is computed in
        # fractions.
        residual, near = exact_residual(search.mixing), np.round(search.mixing)
        if residual and np.abs(near - search.mixing).max() <= NEAR_INTEGERS and not exact_residual(near):
            residual, search.mixing = Fraction(0), near
        norm = float(np.abs(search.mixing).sum())
        search.residual = up(residual)
        search.holds = residual <= Fraction(limits.allowed(norm)) and norm <= limits.max_phi
    weights, proved = tuple(map(float, search.mixing)), bool(rows)
    if search.holds:
        return Decision(Verdict.HOLDS, search.residual, 0.0, weights, proved)
    floor, dual = down(search.floor), search.dual
    if dual is None:
        return Decision(Verdict.UNDECIDED, search.residual, floor, weights, proved, None, 0.0)
    norm_excluded = dual.excludes(Fraction(limits.eps), Fraction(limits.per_norm))
    excluded = None if norm_excluded is None else down(norm_excluded)
    if not search.refuted:
        return Decision(Verdict.UNDECIDED, search.residual, floor, weights, proved, None, excluded)
    values = on_all_keys(dual, search.rows, attention.width)
    return Decision(Verdict.REFUTED, search.residual, floor, weights, proved, values, excluded, stability(dual, limits))


def stability(dual: Dual, limits: Limits) -> float:
    """The largest relative change of every entry of the attention under which this dual still refutes, rounded down."""
    norm = Fraction(limits.max_phi)
    # If every entry changes by a share s, <A_h, y> changes by at most s <A_h, |y|>, and the floor's numerator by at
    # most s times norm times weight. The dual refutes until that uses up the spare, the numerator's excess over the
    # limit.
    spare = dual.gain - norm * dual.attended - (Fraction(limits.eps) + Fraction(limits.per_norm) * norm) * dual.peak
    return down(spare / (norm * dual.weight)) if dual.weight else 0.0
