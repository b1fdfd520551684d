"""One condition decided: one Phi for all chosen queries, within eps and within the largest norm."""

from collections.abc import Sequence
from functools import partial
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from conv2attn.span.condition import Condition, Counting, Mixing, Target
from conv2attn.span.evaluation import Worth, evaluate, improved
from conv2attn.span.exact import Exactly, decide_exactly
from conv2attn.span.factors import LEAST_SQUARES, propose, triangle
from conv2attn.span.limits import Limits
from conv2attn.span.problem import AttentionRows, Targets
from conv2attn.verdicts import Strength, Verdict, weakest_strength, worst_verdict

AFFORDABLE = 10**8
"""Products in the machine's longest float that are still a matter of seconds."""


def decide(
    name: str, attention: AttentionRows, targets: Targets, chosen: NDArray[np.bool_], limits: Limits
) -> Condition:
    """Whether one Phi serves all chosen queries of all images.

    *holds*: a Phi within the norm was found whose residual, with all rounding, is at most eps. *refuted*: no attention
    within the floats' uncertainty has one. *undecided*: neither could be shown.
    """
    queries = int(chosen.sum()) * attention.images
    if not queries or not len(targets):
        why = "no query has its whole neighbourhood on the grid: nothing was checked" if not queries else "no taps"
        return Condition(name, Verdict.UNDECIDED, Strength.PROVED, (), 0, sentence=why)
    factors = propose(triangle(attention, targets, chosen), attention.heads, limits.max_phi)
    proposals = factors.proposals.reshape(-1, attention.heads)
    wanted = np.tile(np.arange(len(targets)), len(factors.proposals))
    worth = evaluate(attention, targets, chosen, proposals, wanted, limits.max_phi)
    exactly = decide_exactly(attention, targets, chosen)
    open_still = np.flatnonzero(np.isin(wanted, undecided(worth, wanted, limits, exactly)))
    if len(open_still) * attention.heads * queries * attention.grid.shape[1] <= AFFORDABLE and len(open_still):
        again = (proposals[open_still], wanted[open_still], limits.max_phi, np.longdouble)
        worth = improved(worth, open_still, evaluate(attention, targets, chosen, *again))
    found = tuple(judge(j, targets, proposals, worth, wanted, limits, exactly[j]) for j in range(len(targets)))
    counting = count(attention, targets, chosen, limits)
    verdict = Verdict.REFUTED if counting else worst_verdict(target.verdict for target in found)
    strength = strength_of(verdict, found, counting, attention.sampled)
    threshold = limits.eps * float(factors.singular[0])
    above, below = factors.singular[factors.singular > threshold], factors.singular[factors.singular <= threshold]
    around = (float(above[-1]) if len(above) else None, float(below[0]) if len(below) else None)
    needed = float(np.abs(factors.proposals[LEAST_SQUARES]).sum(-1).max())
    sentence = say(attention, found, counting, limits, needed)
    numbers = (len(above), around, threshold, counting, sentence, attention.sampled)
    return Condition(name, verdict, strength, found, queries, *numbers)


def undecided(worth: Worth, wanted: NDArray[np.int64], limits: Limits, exactly: Sequence[Exactly | None]) -> list[int]:
    """The targets that float64 leaves open."""
    fits = (worth.norm <= limits.max_phi) & (worth.residual <= limits.eps)
    closed = {int(j) for j in wanted[fits | (worth.floor > limits.eps)]}
    return [j for j, known in enumerate(exactly) if j not in closed and known is None]


def strength_of(verdict: Verdict, found: Sequence[Target], counting: Counting | None, sampled: bool) -> Strength:
    """How the verdict is known: one refuted target refutes, all that hold are needed to hold."""
    strengths = [target.strength for target in found if target.verdict is verdict]
    if counting or (verdict is Verdict.REFUTED and Strength.PROVED in strengths):
        return Strength.PROVED
    if sampled and verdict is Verdict.HOLDS:
        return Strength.SAMPLED
    return weakest_strength(strengths)


def judge(
    j: int,
    targets: Targets,
    proposals: NDArray[np.float64],
    worth: Worth,
    wanted: NDArray[np.int64],
    limits: Limits,
    exactly: Exactly | None,
) -> Target:
    """The verdict on target j, with the mixing that shows it."""
    mine = np.flatnonzero(wanted == j)
    within = mine[worth.norm[mine] <= limits.max_phi]
    best = within[np.argmin(worth.residual[within])] if len(within) else mine[np.argmin(worth.norm[mine])]
    against = mine[np.argmax(worth.floor[mine])]
    floor, weights = max(0.0, float(worth.floor[against])), tuple(map(float, proposals[best]))
    residual, norm = float(worth.residual[best]), float(worth.norm[best])
    offset = targets.offsets[j] if targets.plain else None

    distance, known = float(worth.share[mine].min()), exactly.contained if exactly else None
    target = partial(Target, targets.labels[j], exactly=known, offset=offset, distance=distance)
    if exactly and exactly.contained and exactly.norm <= limits.max_phi:
        witness = Mixing(j, "holds", exactly.weights)
        return target(
            Verdict.HOLDS, Strength.PROVED, 0.0, 0.0, float(exactly.norm), weights=exactly.weights, witness=witness
        )
    numbers = (residual, floor, norm, weights)
    if exactly and exactly.null and exactly.floor > limits.eps:
        lower = max(floor, exactly.floor)
        return target(Verdict.REFUTED, Strength.PROVED, residual, lower, norm, weights, exactly.null)
    if len(within) and residual <= limits.eps:
        return target(Verdict.HOLDS, Strength.BOUNDED, *numbers, Mixing(j, "holds", weights))
    if floor > limits.eps:
        shown = Mixing(j, "refuted", tuple(map(float, proposals[against])))
        return target(Verdict.REFUTED, Strength.BOUNDED, *numbers, shown)
    return target(Verdict.UNDECIDED, Strength.BOUNDED, *numbers, None)


def count(attention: AttentionRows, targets: Targets, chosen: NDArray[np.bool_], limits: Limits) -> Counting | None:
    """Where it refutes: heads are fewer than the shifts, whose stacked rows are orthogonal.

    The distances of T orthogonal rows of squared length n or more from a space of dimension H have squares that add up
    to (T - H) n at least; so one is sqrt((T - H) n / T), and one of its Q queries has that over sqrt(Q).
    Source: Eckart and Young 1936.
    """
    total, heads = len(targets), attention.heads
    if not targets.plain or heads >= total:
        return None
    asked = int((targets.places[:, chosen] >= 0).sum(-1).min())
    least = sqrt((total - heads) * asked / (total * int(chosen.sum()))) * (1 - 1e-12)
    return Counting(heads, total, least) if least > limits.eps else None


def say(
    attention: AttentionRows, found: tuple[Target, ...], counting: Counting | None, limits: Limits, needed: float
) -> str:
    """What the figures alone do not say; `needed` is the norm of Phi by least squares."""
    parts = []
    if counting:
        parts.append(f"{counting.heads} heads cannot span {counting.targets} shifts")
    if needed > limits.max_phi and any(target.verdict is not Verdict.HOLDS for target in found):
        beyond = f"beyond {limits.max_phi:g} and of no practical use"
        parts.append(f"least squares needs a Phi of norm {needed:.1e}, {beyond}: not counted")
    exactly = [target.exactly for target in found if target.exactly is not None]
    if exactly and not attention.one_hot:
        parts.append(f"the ideal operator spans {sum(exactly)} of {len(found)} exactly")
    return "; ".join(parts)
