"""The condition as the paper prints it: at each query, a mixing of its own."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from conv2attn.bounds import gamma
from conv2attn.span.conditions.condition import Condition, Counting, Mixing, Mixings, Target
from conv2attn.span.conditions.limits import Limits
from conv2attn.span.conditions.portions import Portion, shared
from conv2attn.span.conditions.problem import Array, AttentionRows, Targets
from conv2attn.span.conditions.sharing import ALONE
from conv2attn.span.mixings.decision import AFFORDABLE, count, strength_of
from conv2attn.span.mixings.evaluation import CANDIDATES, UNIT, rounding_of, uncertainty
from conv2attn.span.mixings.factors import propose, split, triangular, widened
from conv2attn.span.mixings.residuals import Precision
from conv2attn.span.mixings.single_queries import look_again
from conv2attn.span.mixings.worst import WorstQueries
from conv2attn.verdicts import Strength, Verdict, worst_verdict


def decide_per_query(attention: AttentionRows, targets: Targets, limits: Limits) -> Condition:
    """Whether each query of each image has a Phi_q of its own; the worst query decides.

    For bitwise one-hot rows that is so where one of the heads attends to each target.
    """
    worst = WorstQueries.of_none(targets)
    shadows = attention.exact and not attention.one_hot
    keep_below, serves = (np.inf, -np.inf) if shadows else (limits.eps, limits.eps)
    for portion in parts(attention, targets):
        (chosen, high), (low, against) = best_of_each(attention, targets, portion, limits)
        open_still = np.flatnonzero(((high > limits.eps) & (low <= limits.eps)).any(1))
        if 0 < len(open_still) * portion.attention[:, 0].size * len(targets) <= AFFORDABLE // 10:
            again = (portion.only(open_still), limits, np.longdouble)
            (chosen[open_still], high[open_still]), (low[open_still], against[open_still]) = best_of_each(
                attention, targets, *again
            )
        worst.add(portion, (chosen, high), (low, against), keep_below)
    worst = WorstQueries.of_all(attention.crew.gathered(worst))
    exact = attention.one_hot and targets.plain
    found: list[Target] = []
    for j in range(len(targets)):
        holds, refuted = not shadows and worst.residual[j] <= limits.eps, not shadows and worst.floor[j] > limits.eps
        verdict = Verdict.HOLDS if holds else Verdict.REFUTED if refuted else Verdict.UNDECIDED
        strength = Strength.PROVED if exact and verdict is not Verdict.UNDECIDED else Strength.BOUNDED
        witness = Mixings(j, worst.rows(j)) if holds else worst.shown(j) if refuted else None
        offset = targets.offsets[j] if targets.plain else None
        figures = worst.figures(j) if verdict is not Verdict.UNDECIDED else (worst.served(j, serves), 0.0, 0.0)
        target = Target(targets.labels[j], verdict, strength, *figures, (), witness, None, offset)
        refuted_already = (worst.floor > limits.eps).any() or any(each.verdict is Verdict.REFUTED for each in found)
        if verdict is Verdict.UNDECIDED and (attention.exact or attention.one_hot or not refuted_already):
            alone, left = replace(attention, crew=ALONE), worst.left(j, serves)
            target = look_again(alone, targets, limits, target, worst.rows(j), left)
        found.append(target)
    return summed_up(attention, targets, found, limits)


def parts(attention: AttentionRows, targets: Targets) -> Iterator[Portion]:
    """Portions in which what a mixing of each target leaves takes no more room than what is looked at together."""
    for portion in shared(attention, targets, np.ones(targets.places.shape[1], dtype=bool)):
        yield from portion.parts(max(1, CANDIDATES * attention.heads * len(portion.queries) // max(1, len(targets))))


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
    portion: Portion,
    limits: Limits,
    precision: Precision = np.float64,
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """At each query of a portion: the mixings (queries, targets, heads) of least certified residual within the norm,
    with it; and the highest floor, with the mixings that show it."""
    rest, asked = split(portion, targets.coefficients)
    factor = triangular(np.concatenate([widened(triangular(rest.transpose(1, 2, 0)), len(targets)), asked], 1))
    proposals = propose(factor, attention.heads, limits.max_phi).proposals
    best, high = np.zeros_like(proposals[:, 0]), np.full(proposals[:, 0, :, 0].shape, np.inf)
    against, low = np.zeros_like(best), np.full(high.shape, -np.inf)
    tried: list[Array] = []
    for mixing in np.moveaxis(proposals, 1, 0):
        if any(np.array_equal(mixing, before) for before in tried):
            continue
        tried.append(mixing)
        residual, floor = worth_of_each(attention, targets, portion, mixing, limits, precision)
        better, higher = residual < high, floor > low
        high, best = np.where(better, residual, high), np.where(better[..., None], mixing, best)
        low, against = np.where(higher, floor, low), np.where(higher[..., None], mixing, against)
    return (best, high), (low, against)


def worth_of_each(
    attention: AttentionRows, targets: Targets, portion: Portion, mixing: Array, limits: Limits, precision: Precision
) -> tuple[Array, Array]:
    """Residual and floor, (queries, targets), of a mixing (queries, targets, heads), as `evaluation` defines them."""
    sums = (sums_of_each if mixing.any() else sums_of_nothing)(targets, portion, mixing, precision)
    total, peak, gain, mass, met, weight = sums
    error = gamma(portion.attention.shape[2] + len(targets.offsets) + 4, UNIT[precision]) + 4 * UNIT[np.float64]
    row_sum = float(portion.attention.sum(-1).max()) * (1 + 1e-9)
    residual = total * (1 + error) + rounding_of(mixing, targets.coefficients, row_sum, precision)
    doubt = (uncertainty(attention) + 2 * error) * weight
    blocked = (np.abs(met) + doubt).max(-1) * limits.max_phi * (1 + error)
    missed = np.full(peak.shape, -np.inf, dtype=precision)
    floor = np.divide(gain - error * mass - blocked, peak, out=missed, where=peak > 0) * (1 - 1e-15)
    fits = np.abs(mixing).sum(-1) <= limits.max_phi
    return np.where(fits, residual, np.inf).astype(np.float64), floor.astype(np.float64)


def sums_of_each(targets: Targets, portion: Portion, mixing: Array, precision: Precision) -> tuple[Any, ...]:
    """With `y = e - phi A` at each query: |y|_1, |y|_max, <y, e>, <|y|, |e|>, and <A_h, y>, <A_h, |y|> of each head."""
    exact: Any = portion.attention.swapaxes(0, 1).astype(precision, copy=False)
    left: Any = (-mixing).astype(precision) @ exact
    asked = np.zeros((*left.shape[:2], len(portion.places)))
    for tap, places in enumerate(portion.places):
        there = np.flatnonzero(places >= 0)
        left[there, :, places[there]] += targets.coefficients[:, tap]
        asked[there, :, tap] = targets.coefficients[:, tap]
    met = left @ exact.swapaxes(1, 2)
    gains = np.moveaxis(left[np.arange(len(left)), :, portion.places], 0, -1) * asked
    size = np.abs(left, out=left)
    weight = size @ exact.swapaxes(1, 2)
    return size.sum(-1), size.max(-1), gains.sum(-1), np.abs(gains).sum(-1), met, weight


def sums_of_nothing(targets: Targets, portion: Portion, mixing: Array, precision: Precision) -> tuple[Any, ...]:
    """The same of a mixing that is zero: y is e."""
    there = (portion.places >= 0).T[:, None]
    asked: Any = np.where(there, targets.coefficients, 0).astype(precision)
    read: Any = np.moveaxis(portion.attention[:, np.arange(len(mixing)), portion.places], 2, 0).astype(precision)
    size, squares = np.abs(asked), (asked**2).sum(-1)
    return size.sum(-1), size.max(-1), squares, squares, asked @ read.swapaxes(1, 2), size @ read.swapaxes(1, 2)
