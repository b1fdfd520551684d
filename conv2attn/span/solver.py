"""Decides, target by target, whether one mixing of the heads serves all rows of a group.

A mixing phi is a row of Phi: one coefficient per head. For a target e and the attention A of the heads, the question is
`min over |phi|_1 <= B of max_q |e_q - phi A_q|_1`, a linear programme. Most targets are decided without solving it: the
phi of least squares has a small residual at every row, or its remainder is a dual that refutes every phi. If the answer
lies within a small factor of the limit, such as an `eps` that the user chose, one call of HiGHS on the worst rows
proposes a better phi and a better dual. Every proposal is checked: *holds* rests on a residual rounded up, *refuted* on
the floor (the lower bound) of a dual in integers. Exact rows are first projected exactly.
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
"""A guessed dual whose projection off the heads is at most this, per row, counts as rounding."""
WORST_ENTRIES = 2**14
"""Entries per head that are read of the worst rows. At least heads + 3 rows are read; a dual may need heads + 1."""
KEPT_ENTRIES = 2**22
"""Attention of at most this many entries is kept in memory between the passes instead of being read again."""
NOISE = 256
"""A residual up to this many times the limit may come from rounding in least squares; the mixing is then refined."""
NEAR_INTEGERS = 1e-9
"""If a mixing is within this distance of integers, these integers are tried too."""
LARGEST = 1e3
"""The programme drops the limit on the norm if it is this many times the norm of the start. Steps are at most this."""


@final
@dataclass(frozen=True, eq=False)
class Decision:
    """The verdict on one target in one group of rows, with bounds on the least residual of a mixing.

    Args:
        residual: the residual of `mixing` is at most this at every row.
        floor: every mixing whose norm is within the limit has a residual of at least this at some row.
        proved: whether the decision is in exact arithmetic on exact rows.
        dual: the dual that refutes the target.
        excluded: the norm up to which no mixing serves; None if no mixing of any norm serves.
        stability: how much every entry of the attention may change, relatively, before `dual` stops refuting.
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
    """The decisions on the wanted targets in a group of rows, and the least squares of all targets.

    Args:
        group: rows, numbered `image * queries + query`.
        tight: whether a linear programme is solved for targets that least squares leaves undecided.
    """
    # Small groups are read once and kept. Large ones are read again in each pass, since attention is computed from
    # positions in chunks, and would not fit.
    entries = attention.heads * len(group) * attention.width
    kept = list(portions(attention, targets, group)) if entries <= KEPT_ENTRIES or attention.hot is not None else None

    def read() -> Iterable[Portion]:
        return portions(attention, targets, group) if kept is None else kept

    factors = factors_of(read(), targets.coefficients, limits.max_phi)
    decided: dict[int, Decision] = {}
    # A projection in fractions decides targets on exact rows, except if `max_phi` or `eps` binds. These targets are
    # searched like those on floats.
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
        return {exact.row: exact for exact in hot_rows(attention, targets, group)}
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
    """The decision on exact rows, or None if a projection does not decide; `residual` is that of `mixing`."""
    weights, dual = spanned_exactly(rows, coefficients, target)
    if dual is None:
        within = sum(map(abs, weights), Fraction(0)) <= limits.max_phi
        return Decision(Verdict.HOLDS, 0.0, 0.0, weights, True) if within else None
    # The remainder is orthogonal to the heads, so its floor is the same for every norm. Exact rows have `per_norm` 0,
    # so a dual that refutes mixings of one norm refutes mixings of every norm.
    floor = dual.floor(Fraction(limits.max_phi))
    allowed = Fraction(limits.eps) + Fraction(limits.per_norm) * Fraction(limits.max_phi)
    if floor <= allowed:
        return None
    values, low = on_all_keys(dual, rows, attention.width), down(floor)
    return Decision(Verdict.REFUTED, max(residual, low), low, tuple(map(float, mixing)), True, values, None)


@final
@dataclass(eq=False)
class Search:
    """The search for one target: the best mixing so far (at first 0), its residual, and the best dual so far."""

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
        # Fractions are needed: a limit in floats could round down to a number below the floor, and refute wrongly.
        norm = Fraction(self.limits.max_phi)
        return self.floor > Fraction(self.limits.eps) + Fraction(self.limits.per_norm) * norm

    def offer(self, mixing: Array, residual: float) -> None:
        """Takes a mixing if it is within the norm and better than the best one so far."""
        # A mixing that holds is better than one that does not; otherwise the smaller residual is better. The limit
        # grows with the norm, so a mixing that holds may have a larger residual than one that does not.
        norm = float(np.abs(mixing).sum())
        if norm <= self.limits.max_phi:
            fits = residual <= self.limits.allowed(norm)
            if fits > self.holds or (fits == self.holds and residual < self.residual):
                self.mixing, self.residual, self.holds = mixing, residual, fits

    def weigh(self, attention: AttentionRows, targets: Targets, order: Whole, y: Array) -> None:
        """Tries integer duals near y (rows * keys) until one refutes; keeps the dual with the highest exact floor."""
        # The rows are sorted, as they are in the certificate of a dual.
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
    """The mixing itself, and the nearest integers if they differ from it by no more than rounding."""
    # A head that is a shift has a mixing of 0 and 1, whose products with attention are exact and whose residual is 0.
    near = np.round(mixing)
    return [mixing, near] if 0 < np.abs(near - mixing).max() <= NEAR_INTEGERS else [mixing]


@final
@dataclass(frozen=True, eq=False)
class WorstRows:
    """The rows where the least-squares mixing phi of one target has its largest residuals, worst first.

    Args:
        order: numbers of the rows, (rows).
        heads: attention of the heads, (heads, rows, keys).
        target_rows: the target e, (rows, keys).
        remainder: `e - phi A`, (rows, keys).
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
            # In the order of queries, since readers return consecutive queries as a slice instead of a copy.
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
        """The floor of the best cheap dual, and the vector y (rows * keys) that it comes from.

        y is the signs of the least-squares remainder, or the remainder itself. Both are tried with and without a
        projection off the heads. The floor is computed in float64, and proves nothing.
        """
        heads = self.heads.reshape(len(self.heads), -1)
        target, remainder = self.target_rows.ravel(), self.remainder.ravel()
        # Signs are the dual of a 1-norm, and better if the remainder of a row is large at few keys. The remainder is
        # the dual of least squares, and is orthogonal to the heads over all rows.
        signs = np.sign(remainder)
        scaled = remainder / (np.abs(remainder).max(initial=0.0) or 1.0)
        best, floor = remainder, -np.inf
        for y in (signs, scaled):
            # On the worst rows alone y is not orthogonal to the heads. Projected, it refutes mixings of every norm.
            # Unprojected, it loses `max_phi` times its inner products with the heads. It is still better if heads
            # nearly depend on each other, since the projection removes parts that no mixing within the norm can reach.
            null_vector = y - heads.T @ np.linalg.lstsq(heads.T, y, rcond=None)[0]
            # The inner products of the projection with the heads are rounding in float64, and count as 0 here. The
            # projection is computed to more digits later.
            for dual, attended in ((null_vector, 0.0), (y, float(np.abs(heads @ y).max()))):
                peaks = np.abs(dual).reshape(len(self.order), -1).max(-1)
                if peaks.sum() <= GUESS_NOISE * len(self.order):
                    continue
                promised = (float(dual @ target) - max_phi * attended) / float(peaks.sum())
                # y itself is kept in either case, since `duals_near` tries it with and without a projection.
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

    Four steps are made, each for the targets that are still undecided: the mixing of least squares, one refinement of
    it, its remainder as a dual, and the linear programme on the worst rows.
    """
    # Every search begins with the mixing 0, which is within every norm. Its remainder is the target itself.
    zero = np.zeros(attention.heads)
    searches = [
        Search(j, limits, zero, float(targets.largest[j]), targets.largest[j] <= limits.allowed(0)) for j in wanted
    ]
    # Some best dual is zero on all but heads + 1 rows (Caratheodory), so few rows can refute. That the worst rows of
    # least squares are such rows is a guess: duals on them are checked, and a target without a dual stays undecided.
    most = max(attention.heads + 3, WORST_ENTRIES // attention.width)
    starts = [(search, mixing) for search in searches for mixing in with_integers(factors.bounded[search.target])]
    worst = offer_all(starts, attention, targets, read, most)
    # A residual just above the limit may come from rounding of the factors. One refinement of all mixings is one pass.
    near = [search for search in searches if not search.holds and search.residual <= NOISE * limits.allowed(0)]
    offer_all(refined_squares(near, targets, read, factors), attention, targets, read, 0)
    better: list[tuple[Search, Array]] = []
    # Every target has its own worst rows, and most targets are refuted by few of them.
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
    # The programme saw only the worst rows, so its mixings are checked at all rows, in one pass for all targets.
    offer_all([(search, mixing) for search, mixing in better if not search.refuted], attention, targets, read, 0)
    return searches


def refined_squares(
    searches: Sequence[Search], targets: Targets, read: Callable[[], Iterable[Portion]], factors: Factors
) -> list[tuple[Search, Array]]:
    """The mixings of some searches after one step of iterative refinement (Bjorck 1967).

    The factors lose some digits in inner products. The refinement removes this rounding from the residual of a target
    that holds.
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
    """Offers mixings to their searches, in one pass over the rows.

    Returns:
        For each target, at most `most` rows where its first mixing has the largest residuals, worst first.
    """
    if not candidates:
        return {}
    wanted = np.array([search.target for search, _ in candidates])
    mixings = np.array([mixing for _, mixing in candidates])
    residuals, worst = residuals_of(read(), targets, attention.width, mixings, wanted, most)
    for (search, mixing), residual in zip(candidates, residuals, strict=True):
        search.offer(mixing, float(residual))
    # A dictionary keeps the last of equal keys. Hence the list is reversed, so the rows are those of the least-squares
    # mixing and not those of its rounding to integers.
    return dict(reversed(list(zip(wanted.tolist(), worst, strict=True))))


def refute_by_squares(search: Search, attention: AttentionRows, targets: Targets, rows: WorstRows) -> None:
    """Tries the remainder of least squares as a dual, first on few of the worst rows, then on more of them."""
    # The cost of an exact floor grows with the number of rows, and few rows refute most targets.
    allowed = search.limits.allowed(search.limits.max_phi)
    best: tuple[float, Whole, Array] | None = None
    for count in (*GUESS_ROWS, len(rows.order)):
        few = rows.first(count)
        floor, y = few.own_dual(search.limits.max_phi)
        # If the floor in floats is above twice the limit, the exact floor is computed, since it probably refutes. Of
        # the other duals only the one with the largest floor is tried, at the end.
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

    It minimises t over x, s, t with `|remainder - A frame x| <= s` at each key and `sum of s <= t` at each row. The
    mixing is `start + frame x + idle z`: the columns of `frame` move the rows, and those of `idle` move no row. Both
    results are proposals, which the caller checks exactly.

    Source: Huangfu and Hall 2018 (HiGHS).
    """
    from scipy.optimize import linprog
    from scipy.sparse import bmat, csr_array, eye_array, kron

    heads, count = len(start), rows.remainder.size
    unit = float(np.abs(rows.remainder).sum(-1).max()) or 1.0
    # HiGHS meets constraints to 1e-10 at best, so all variables should be of similar size. A unit step of a variable
    # moves the rows by about the remainder, along a singular direction of the attention. With single heads instead of
    # directions, heads that nearly depend on each other would need huge steps of opposite signs.
    lengths = np.minimum(np.sqrt(len(rows.order)) / factors.singular[factors.kept], max_phi / unit)
    frame = (factors.directions[factors.kept] * lengths[:, None]).T * unit
    # Directions that move no row may still reduce the norm of the mixing.
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
    costs[-1] = 1  # only t, the last variable, is minimised
    bounds: list[tuple[float, float | None]] = [(-LARGEST, LARGEST)] * moved.shape[1] + [(0, None)] * (count + 1)
    if max_phi < LARGEST * max(1.0, float(np.abs(start).sum())):
        # The norm may bind: |start + frame x + idle z| <= w with a sum of w of at most `max_phi`, all over `max_phi`.
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
    near = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}  # the smallest that HiGHS takes
    answer = linprog(costs, bmat(blocks, format="csr"), side, bounds=bounds, method="highs", options=near)
    if answer.status != 0:
        return None
    steps, rest = answer.x[: moved.shape[1]], answer.x[moved.shape[1] + count + 1 :]
    mixing: Array = start + frame @ steps
    if len(rest):
        mixing = mixing + idle @ rest[: idle.shape[1]]
    size = float(np.abs(mixing).sum())
    # HiGHS meets the norm only up to its tolerance. The mixing is scaled down, since one beyond the norm does not
    # count.
    if size > max_phi:
        mixing = mixing * (max_phi * (1 - 1e-15) / size)
    # The dual is the difference of two multipliers, of `-moved x - s <= -remainder` and of `moved x - s <= remainder`.
    weights = answer.ineqlin.marginals
    return mixing, np.asarray(weights[count : 2 * count] - weights[:count])


def judged(
    search: Search, attention: AttentionRows, rows: dict[int, ExactRow], targets: Targets, limits: Limits
) -> Decision:
    """The decision at the end of a search. On exact rows the residual is computed again in fractions."""
    if rows:
        coefficients = Coefficients.exactly(targets.coefficients)

        def exact_residual(mixing: Array) -> Fraction:
            return max(row_residual(row, coefficients, search.target, mixing.tolist()) for row in rows.values())

        # In floats a residual includes a margin for rounding. In fractions it does not need one.
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
    # most s times norm times weight. The dual refutes as long as this is below `spare`, by which the numerator exceeds
    # the limit.
    spare = dual.gain - norm * dual.attended - (Fraction(limits.eps) + Fraction(limits.per_norm) * norm) * dual.peak
    return down(spare / (norm * dual.weight)) if dual.weight else 0.0
