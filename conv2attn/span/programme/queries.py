"""The condition as the paper prints it: at each query, a mixing of its own. The same programme, row by row."""

from array import array
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from conv2attn.bounds import up
from conv2attn.span.conditions.condition import Condition, Counting, DualVector, Mixings, Row, Target
from conv2attn.span.conditions.integer_rows import Coefficients, QueryRows
from conv2attn.span.conditions.limits import Limits
from conv2attn.span.conditions.portions import Portion, shared
from conv2attn.span.conditions.problem import Array, AttentionRows, Targets
from conv2attn.span.programme.cuts import CANDIDATES, rounded_up
from conv2attn.span.programme.decision import count, of_exactly, settles, strength_of, target_of
from conv2attn.span.programme.dual import floats_of, rows_at
from conv2attn.span.programme.factors import factored, split, triangular, widened
from conv2attn.span.programme.master import Master
from conv2attn.span.programme.rows import RowProgramme, solve_rows
from conv2attn.span.programme.search import Search, weigh_one
from conv2attn.span.rational.containment import exact_row, row_left
from conv2attn.verdicts import Strength, Verdict, worst_verdict

AFFORDABLE = 1000
"""Queries of a target that are decided one by one, worst first."""
OPEN = 20
"""Queries of a target that may stay undecided before no more are tried."""


def decide_per_query(attention: AttentionRows, targets: Targets, limits: Limits) -> Condition:
    """Whether each query of each image has a Phi_q of its own; the worst query decides.

    Least squares serves most queries. The others are decided one by one, worst first, until one is refuted.
    """
    per_image, total = targets.places.shape[1], attention.images * targets.places.shape[1]
    mixings = np.zeros((total, len(targets), attention.heads))
    residuals = np.zeros((total, len(targets)))
    everywhere = np.ones(per_image, dtype=bool)
    for whole in shared(attention, targets, everywhere):
        step = max(1, CANDIDATES * attention.heads * len(whole.queries) // max(1, len(targets)))
        for portion in whole.parts(step):
            found, left = of_least_squares(targets, portion, limits)
            rows = portion.image * per_image + portion.members
            mixings[rows], residuals[rows] = found[portion.kind], left[portion.kind]
    trusted = not attention.exact or attention.one_hot
    states = [Queries(j, targets, limits, mixings[:, j], residuals[:, j], trusted) for j in range(len(targets))]
    while pending := [(state, row) for state in states if (row := state.next_row()) is not None]:
        held = rows_at(attention, targets, [row for _, row in pending], alone=True)
        programmes = [state.programme(held[row], row) for state, row in pending]
        for (state, row), programme, solved in zip(pending, programmes, solve_rows(programmes), strict=True):
            state.add(row, at_row(attention, targets, state.target, limits, held[row], row, programme, solved))
    return summed_up(attention, targets, [state.found(attention) for state in states], limits)


def of_least_squares(targets: Targets, portion: Portion, limits: Limits) -> tuple[Array, Array]:
    """At each query of a portion the mixings (queries, targets, heads) within the norm, and what they leave."""
    heads = len(portion.attention)
    rest, asked = split(portion, targets.coefficients)
    factor = triangular(np.concatenate([widened(triangular(rest.transpose(1, 2, 0)), len(targets)), asked], 1))
    mixings = factored(factor, heads, limits.max_phi).bounded
    left = -mixings @ portion.attention.swapaxes(0, 1)
    for tap, places in enumerate(portion.places):
        there = np.flatnonzero(places >= 0)
        left[there, :, places[there]] += targets.coefficients[:, tap]
    row_sum = float(portion.attention.sum(-1).max()) * (1 + 1e-9)
    sizes = np.abs(left, out=left).sum(-1)
    asked_for = (np.abs(targets.coefficients) @ (portion.places >= 0)).T
    mixings = np.where((sizes < asked_for)[..., None], mixings, 0.0)
    sizes = np.minimum(sizes, asked_for)
    width = portion.attention.shape[2]
    return mixings, rounded_up(sizes, mixings, targets.coefficients, targets.largest, row_sum, width)


class Queries:
    """One target at all rows (image * queries + query): which are served, and what was found of the others, in turn."""

    def __init__(
        self, target: int, targets: Targets, limits: Limits, mixings: Array, residuals: Array, trusted: bool
    ) -> None:
        self.target, self.targets, self.limits, self.mixings = target, targets, limits, mixings
        norms = np.abs(mixings).sum(-1)
        serves = (residuals <= limits.eps + limits.per_norm * norms) & (norms <= limits.max_phi) & trusted
        left = np.flatnonzero(~serves)
        self.order: NDArray[np.int64] = left[np.argsort(-residuals[left], kind="stable")]
        self.residuals, self.norms = residuals, norms
        self.known: list[Target] = []
        self.weights: dict[int, Row] = {}

    def next_row(self) -> int | None:
        """The row to look at next; None where the target is decided, or enough rows stay open."""
        stays_open = sum(each.verdict is Verdict.UNDECIDED for each in self.known)
        done = len(self.known) >= min(AFFORDABLE, len(self.order)) or stays_open >= OPEN
        refuted = bool(self.known) and self.known[-1].verdict is Verdict.REFUTED
        return None if done or refuted else int(self.order[len(self.known)])

    def programme(self, held: QueryRows, row: int) -> RowProgramme:
        """The programme of a row, from the mixing of least squares."""
        coefficients = Coefficients.exactly(self.targets.coefficients)
        asked = np.zeros(held.heads.ncols())
        for key, number in coefficients.of(self.target, held).items():
            asked[key] = number / (1 << coefficients.bits)
        start = self.mixings[row]
        within = float(np.abs(start).sum()) <= self.limits.max_phi
        return RowProgramme(floats_of({row: held}, [row]), asked, start if within else 0 * start, self.limits.max_phi)

    def add(self, row: int, found: Target) -> None:
        """Adds the answer at a row."""
        self.known.append(found)
        self.weights[row] = found.weights

    def found(self, attention: AttentionRows) -> Target:
        """The target, at all rows."""
        label, known = self.targets.labels[self.target], self.known
        offset = self.targets.offsets[self.target] if self.targets.plain else None
        others = np.ones(len(self.residuals), dtype=bool)
        others[self.order[: len(known)]] = False
        residual = max([float(self.residuals[others].max(initial=0.0)), *(each.residual for each in known)])
        norm = max([float(self.norms[others].max(initial=0.0)), *(each.norm for each in known)])
        floor = max([0.0, *(each.floor for each in known)])
        if known and known[-1].verdict is Verdict.REFUTED:
            last = known[-1]
            named = partial(Target, offset=offset, stability=last.stability)
            return named(label, Verdict.REFUTED, last.strength, residual, floor, norm, (), last.witness)
        verdict = worst_verdict([Verdict.HOLDS, *(each.verdict for each in known)])
        if len(known) < len(self.order):
            verdict = Verdict.UNDECIDED
        exact = (attention.exact or attention.one_hot) and self.targets.plain
        strength = Strength.PROVED if exact else Strength.BOUNDED
        witness = Mixings(self.target, self.rows()) if verdict is Verdict.HOLDS else None
        return Target(label, verdict, strength, residual, floor, norm, (), witness, offset=offset)

    def rows(self) -> tuple[Row, ...]:
        """The mixing of each row; rows that share one share its numbers."""
        whole, which = np.unique(self.mixings, axis=0, return_inverse=True)
        held: list[Row] = [array("d", mixing) for mixing in whole]
        return tuple(self.weights.get(row, held[at]) for row, at in enumerate(which.reshape(-1)))


def at_row(
    attention: AttentionRows,
    targets: Targets,
    target: int,
    limits: Limits,
    held: QueryRows,
    row: int,
    programme: RowProgramme,
    solved: tuple[Array, Array] | None,
) -> Target:
    """One target at one row, in exact arithmetic."""
    label, coefficients = targets.labels[target], Coefficients.exactly(targets.coefficients)
    exactly = exact_row(held, coefficients, target) if attention.exact or attention.one_hot else None
    if exactly is not None and settles(exactly, limits):
        return of_exactly(target, label, exactly, programme.start, 1.0)
    strength = Strength.PROVED if attention.exact or attention.one_hot else Strength.BOUNDED
    search = Search(
        target, Master(programme.start, np.eye(attention.heads), 1.0, limits.max_phi), limits, 0 * programme.start
    )

    def try_out(mixings: Sequence[Array]) -> None:
        for mixing in mixings:
            norm = float(np.abs(mixing).sum())
            left = row_left(held, coefficients, target, mixing.tolist()) if norm <= limits.max_phi else None
            if left is None:
                continue
            fits = left <= Fraction(limits.allowed(norm))
            if fits > search.holds or (fits == search.holds and up(left) < search.residual):
                search.mixing, search.residual, search.holds = mixing, up(left), bool(fits)

    try_out([programme.start, 0 * programme.start, np.round(programme.start), *([solved[0]] if solved else [])])
    if solved is not None and not search.holds:
        search.lower = search.residual
        weigh_one(search, {row: held}, {row: solved[1]}, coefficients)
        if not search.refuted and limits.per_norm:
            try_out(programme.padded(search.mixing, 1.01 * (search.residual - limits.eps) / limits.per_norm))
    if search.dual is not None and held.keys is not None:
        whole = [0] * attention.width
        for key, number in zip(held.keys, search.dual.values[row], strict=True):
            whole[key] = number
        search.dual = replace(search.dual, values={row: whole})
    return target_of(search, label, strength)


def summed_up(attention: AttentionRows, targets: Targets, found: Sequence[Target], limits: Limits) -> Condition:
    """The condition of these targets; counting is done where all offsets are on the grid."""
    inside = targets.interior
    counting: Counting | None = count(attention, targets, inside, limits) if inside.any() else None
    verdict = Verdict.REFUTED if counting else worst_verdict(target.verdict for target in found)
    strength = strength_of(verdict, found, counting, attention.sampled)
    sentence = f"{counting.heads} heads cannot span {counting.targets} shifts" if counting else ""
    worst = max(found, key=lambda target: target.floor, default=None)
    if not counting and worst is not None and isinstance(worst.witness, DualVector):
        sentence = f"query {worst.witness.values[0][0]} does not reach {worst.label}"
    queries = targets.places.shape[1] * attention.images
    named = partial(Condition, "per-query", verdict, strength, tuple(found), queries)
    return named(counting=counting, sentence=sentence, sampled=attention.sampled)
