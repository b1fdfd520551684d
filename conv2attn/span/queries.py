"""The condition as the paper prints it: at each query, a mixing of its own."""

import numpy as np

from conv2attn.bounds import gamma
from conv2attn.span.condition import Condition, Counting, Mixing, Mixings, Target, Witness
from conv2attn.span.decision import AFFORDABLE, count, strength_of
from conv2attn.span.evaluation import UNIT, Precision, rounding_of, uncertainty
from conv2attn.span.factors import propose, triangular
from conv2attn.span.limits import Limits
from conv2attn.span.problem import Array, AttentionRows, Targets, selected
from conv2attn.span.single_queries import look_again
from conv2attn.verdicts import Strength, Verdict, worst_verdict


def decide_per_query(attention: AttentionRows, targets: Targets, limits: Limits) -> Condition:
    """Whether each query of each image has a Phi_q of its own; the worst query decides.

    For bitwise one-hot rows that is so where one of the heads attends to each target.
    """
    count_of = len(targets)
    residual, floor = np.zeros(count_of), np.full(count_of, -np.inf)
    norm, worst = np.zeros(count_of), np.full(count_of, -1)
    witnesses: list[Witness | None] = [None] * count_of
    kept: list[list[tuple[float, ...]]] = [[] for _ in range(count_of)]
    left: list[list[int]] = [[] for _ in range(count_of)]
    shadows, settled = attention.exact and not attention.one_hot, np.zeros(count_of)
    everywhere = np.ones(targets.places.shape[1], dtype=bool)
    for image, queries, block in selected(attention, everywhere):
        asked = targets.block(queries, block.shape[2]).swapaxes(0, 1)
        rows = block.swapaxes(0, 1)
        (chosen, high), (low, against) = best_of_each(attention, targets, rows, asked, limits)
        open_still = np.flatnonzero(((high > limits.eps) & (low <= limits.eps)).any(1))
        if 0 < len(open_still) * rows[0].size * count_of <= AFFORDABLE // 10:
            again = (rows[open_still], asked[open_still], limits, np.longdouble)
            (chosen[open_still], high[open_still]), (low[open_still], against[open_still]) = best_of_each(
                attention, targets, *again
            )
        for j in range(count_of):
            at, under = int(high[:, j].argmax()), int(low[:, j].argmax())
            residual[j] = max(residual[j], high[at, j])
            kept[j].extend(tuple(map(float, row)) for row in chosen[:, j])
            open_rows = shadows | (high[:, j] > limits.eps)
            left[j].extend(image * targets.places.shape[1] + int(q) for q in queries[open_rows])
            settled[j] = max(settled[j], high[~open_rows, j].max(initial=0.0))
            norm[j] = max(norm[j], np.abs(chosen[:, j]).sum(-1).max())
            if low[under, j] > floor[j]:
                floor[j], worst[j] = low[under, j], queries[under]
                weights = tuple(map(float, against[under, j]))
                witnesses[j] = Mixing(j, "refuted", weights, image * targets.places.shape[1] + int(queries[under]))
    exact = attention.one_hot and targets.plain
    found: list[Target] = []
    for j in range(count_of):
        holds, refuted = not shadows and residual[j] <= limits.eps, not shadows and floor[j] > limits.eps
        verdict = Verdict.HOLDS if holds else Verdict.REFUTED if refuted else Verdict.UNDECIDED
        strength = Strength.PROVED if exact and verdict is not Verdict.UNDECIDED else Strength.BOUNDED
        witness = Mixings(j, tuple(kept[j])) if holds else witnesses[j] if refuted else None
        offset = targets.offsets[j] if targets.plain else None
        known = (residual, floor, norm) if verdict is not Verdict.UNDECIDED else (settled, np.zeros(count_of), norm * 0)
        left_over, least, size = (max(0.0, float(each[j])) for each in known)
        target = Target(targets.labels[j], verdict, strength, left_over, least, size, (), witness, None, offset)
        refuted_already = (floor > limits.eps).any() or any(each.verdict is Verdict.REFUTED for each in found)
        if verdict is Verdict.UNDECIDED and (shadows or not refuted_already):
            target = look_again(attention, targets, limits, target, kept[j], left[j])
        found.append(target)
    return summed_up(attention, targets, found, limits)


def summed_up(attention: AttentionRows, targets: Targets, found: list[Target], limits: Limits) -> Condition:
    """The condition of these targets; counting is done where all offsets are on the grid."""
    inside = targets.interior
    counting: Counting | None = count(attention, targets, inside, limits) if inside.any() else None
    verdict = Verdict.REFUTED if counting else worst_verdict(target.verdict for target in found)
    strength = strength_of(verdict, found, counting, attention.sampled)
    worst = max(found, key=lambda target: target.floor)
    where = worst.witness.query if isinstance(worst.witness, Mixing) else None
    sentence = f"{counting.heads} heads cannot span {counting.targets} shifts" if counting else ""
    if where is not None and not counting:
        sentence = f"query {where} does not reach {worst.label}"
    return Condition(
        "per-query",
        verdict,
        strength,
        tuple(found),
        targets.places.shape[1] * attention.images,
        counting=counting,
        sentence=sentence,
        sampled=attention.sampled,
    )


def best_of_each(
    attention: AttentionRows,
    targets: Targets,
    block: Array,
    asked: Array,
    limits: Limits,
    precision: Precision = np.float64,
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """For blocks (queries, heads, keys) and (queries, targets, keys): the mixings (queries, targets, heads) of least
    certified residual within the norm, with it; and the highest floor, with the mixings that show it."""
    stacked = np.concatenate([block, asked], 1).swapaxes(1, 2)
    proposals = propose(triangular(stacked), attention.heads, limits.max_phi).proposals
    best, high = np.zeros_like(proposals[:, 0]), np.full(asked.shape[:2], np.inf)
    against, low = np.zeros_like(best), np.full(asked.shape[:2], -np.inf)
    error = gamma(block.shape[2] + len(targets.offsets) + 4, UNIT[precision]) + 4 * UNIT[np.float64]
    row_sum, exact = float(block.sum(-1).max()) * (1 + 1e-9), block.astype(precision)
    for mixing in np.moveaxis(proposals, 1, 0):
        left = asked - mixing.astype(precision) @ exact
        size = np.abs(left)
        norm = np.abs(mixing).sum(-1)
        residual = size.sum(-1) * (1 + error) + rounding_of(mixing, targets.coefficients, row_sum, precision)
        residual = np.where(norm <= limits.max_phi, residual, np.inf).astype(np.float64)
        gain = (left * asked).sum(-1) - error * (size * np.abs(asked)).sum(-1)
        doubt = (uncertainty(attention) + 2 * error) * (size @ exact.swapaxes(1, 2))
        blocked = (np.abs(left @ exact.swapaxes(1, 2)) + doubt).max(-1) * limits.max_phi * (1 + error)
        peak = size.max(-1)
        missed = np.full(peak.shape, -np.inf, dtype=precision)
        floor = (np.divide(gain - blocked, peak, out=missed, where=peak > 0) * (1 - 1e-15)).astype(np.float64)
        better, higher = residual < high, floor > low
        high, best = np.where(better, residual, high), np.where(better[..., None], mixing, best)
        low, against = np.where(higher, floor, low), np.where(higher[..., None], mixing, against)
    return (best, high), (low, against)
