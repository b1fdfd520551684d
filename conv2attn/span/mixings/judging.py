"""The verdict on one target, from what was found in float64, in longer floats, and in exact arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np
from numpy.typing import NDArray

from conv2attn.bounds import down, up
from conv2attn.span.conditions.condition import Mixing, Target
from conv2attn.span.conditions.limits import Limits
from conv2attn.span.conditions.problem import Array, Targets
from conv2attn.span.mixings.evaluation import Worth
from conv2attn.span.mixings.refinement import Refined
from conv2attn.span.rational.exact import Exactly
from conv2attn.verdicts import Strength, Verdict


@final
@dataclass(frozen=True, eq=False)
class Floats:
    """Mixings (candidates, heads) in floats for the targets `wanted`, and their worth.

    They are `trusted` unless the floats are but the shadow of rows that were declared exact.
    """

    mixings: Array
    wanted: NDArray[np.int64]
    worth: Worth
    trusted: bool


def undecided(floats: Floats, limits: Limits, exactly: Sequence[Exactly | None]) -> list[int]:
    """The targets that floats and what is known exactly leave open."""
    fits = (floats.worth.norm <= limits.max_phi) & (floats.worth.residual <= limits.eps)
    closed = {int(j) for j in floats.wanted[fits | (floats.worth.floor > limits.eps)]} if floats.trusted else set()
    return [j for j, known in enumerate(exactly) if j not in closed and not settles(known, limits)]


def settles(known: Exactly | None, limits: Limits) -> bool:
    """Whether what is known exactly decides within these limits."""
    if known is None:
        return False
    return known.norm <= limits.max_phi if known.contained else known.floor > limits.eps


def hides(refined: Refined, limits: Limits) -> bool:
    """Whether the target is open by nature: attention within the uncertainty satisfies the condition."""
    return refined.reach is not None and refined.reach <= limits.eps and refined.norm <= limits.max_phi


def judge(
    j: int, targets: Targets, floats: Floats, limits: Limits, exactly: Exactly | None, refined: Sequence[Refined]
) -> Target:
    """The verdict on target j, with the mixing that shows it."""
    worth, mine = floats.worth, np.flatnonzero(floats.wanted == j)
    within = mine[worth.norm[mine] <= limits.max_phi]
    best = within[np.argmin(worth.residual[within])] if len(within) else mine[np.argmin(worth.norm[mine])]
    against = mine[np.argmax(worth.floor[mine])]
    floor, weights = max(0.0, float(worth.floor[against])), tuple(map(float, floats.mixings[best]))
    residual, norm = float(worth.residual[best]), float(worth.norm[best])
    offset = targets.offsets[j] if targets.plain else None
    distance, known = float(worth.share[mine].min()), exactly.contained if exactly else None
    target = partial(Target, targets.labels[j], exactly=known, offset=offset, distance=distance)
    strength = Strength.BOUNDED if floats.trusted else Strength.PROVED

    if exactly and exactly.contained and exactly.norm <= limits.max_phi:
        numbers = (0.0, 0.0, up(exactly.norm), exactly.weights)
        return target(Verdict.HOLDS, Strength.PROVED, *numbers, Mixing(j, "holds", exactly.weights))
    if exactly and exactly.null and exactly.floor > limits.eps:
        lower = max(floor if floats.trusted else 0.0, down(exactly.floor))
        return target(Verdict.REFUTED, Strength.PROVED, residual, lower, norm, weights, exactly.null)
    if floats.trusted and len(within) and residual <= limits.eps:
        return target(Verdict.HOLDS, strength, residual, floor, norm, weights, Mixing(j, "holds", weights))
    if floats.trusted and floor > limits.eps:
        shown = Mixing(j, "refuted", tuple(map(float, floats.mixings[against])))
        return target(Verdict.REFUTED, strength, residual, floor, norm, weights, shown)
    low = max([down(each.floor) for each in refined], default=0.0)
    floor = max(floor, low) if floats.trusted else max(0.0, low)
    for each in refined:
        if each.residual is not None and each.norm <= limits.max_phi and up(each.residual) < residual:
            residual, norm, weights = up(each.residual), up(each.norm), tuple(map(float, each.weights))
        if each.residual is not None and each.residual <= limits.eps and each.norm <= limits.max_phi:
            found = (up(each.residual), 0.0, up(each.norm), each.weights)
            return target(Verdict.HOLDS, strength, *found, Mixing(j, "holds", each.weights))
        if each.floor > limits.eps:
            shown = Mixing(j, "refuted", each.weights, queries=each.queries, inverse=each.inverse)
            return target(Verdict.REFUTED, strength, residual, floor, norm, weights, shown)
    return target(Verdict.UNDECIDED, strength, residual, floor, norm, weights, None)
