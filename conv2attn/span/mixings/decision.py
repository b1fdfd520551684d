"""One condition decided: one Phi for all chosen queries, within eps and within the largest norm."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from conv2attn.bounds import down, up
from conv2attn.span.conditions.condition import Condition, Counting, Target
from conv2attn.span.conditions.limits import Limits
from conv2attn.span.conditions.problem import AttentionRows, Targets
from conv2attn.span.mixings.evaluation import evaluate, improved
from conv2attn.span.mixings.factors import LEAST_SQUARES, NEGLIGIBLE, propose, triangle
from conv2attn.span.mixings.judging import Floats, hides, judge, undecided
from conv2attn.span.mixings.refinement import Refined, refine
from conv2attn.span.rational.containment import decide_exactly
from conv2attn.verdicts import Strength, Verdict, weakest_strength, worst_verdict

AFFORDABLE = 10**8
"""Products in the machine's longest float that are still a matter of seconds."""


def decide(
    name: str, attention: AttentionRows, targets: Targets, chosen: NDArray[np.bool_], limits: Limits
) -> Condition:
    """Whether one Phi serves all chosen queries of all images.

    *holds*: a Phi within the norm was found whose residual, with all rounding, is at most eps. *refuted*: no attention
    within the floats' uncertainty has one. *undecided*: neither could be shown, in exact arithmetic where the size
    allows; the sentence tells where the floats themselves do not tell.
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
    floats = Floats(proposals, wanted, worth, trusted=not attention.exact)
    left = undecided(floats, limits, exactly)
    open_still = np.flatnonzero(np.isin(wanted, left))
    if attention.exact or len(open_still) * attention.heads * queries * attention.width > AFFORDABLE:
        open_still = open_still[:0]
    if len(open_still):
        again = (proposals[open_still], wanted[open_still], limits.max_phi, np.longdouble)
        better = improved(worth, open_still, evaluate(attention, targets, chosen, *again))
        floats = Floats(proposals, wanted, better, trusted=True)
        left = undecided(floats, limits, exactly)
    refined = refine(attention, targets, chosen, limits, left) if left else {}
    found = tuple(judge(j, targets, floats, limits, exactly[j], refined.get(j, ())) for j in range(len(targets)))
    counting = count(attention, targets, chosen, limits)
    verdict = Verdict.REFUTED if counting else worst_verdict(target.verdict for target in found)
    strength = strength_of(verdict, found, counting, attention.sampled)
    threshold = max(limits.eps, NEGLIGIBLE) * float(factors.singular[0])
    above, below = factors.singular[factors.singular > threshold], factors.singular[factors.singular <= threshold]
    around = (float(above[-1]) if len(above) else None, float(below[0]) if len(below) else None)
    needed = float(np.abs(factors.proposals[LEAST_SQUARES]).sum(-1).max())
    hidden = [r for j, rs in refined.items() if found[j].verdict is Verdict.UNDECIDED for r in rs if hides(r, limits)]
    sentence = "; ".join(filter(None, [say(attention, found, counting, limits, needed), *veiled(hidden, attention)]))
    numbers = (len(above), around, threshold, counting, sentence, attention.sampled)
    return Condition(name, verdict, strength, found, queries, *numbers)


def strength_of(verdict: Verdict, found: Sequence[Target], counting: Counting | None, sampled: bool) -> Strength:
    """How the verdict is known: one refuted target refutes, all that hold are needed to hold."""
    strengths = [target.strength for target in found if target.verdict is verdict]
    if counting or (verdict is Verdict.REFUTED and Strength.PROVED in strengths):
        return Strength.PROVED
    if sampled and verdict is Verdict.HOLDS:
        return Strength.SAMPLED
    return weakest_strength(strengths)


def count(attention: AttentionRows, targets: Targets, chosen: NDArray[np.bool_], limits: Limits) -> Counting | None:
    """Where it refutes: heads are fewer than the shifts, whose rows ask for keys of their own.

    Some c other than 0 makes `y = sum_t c_t e_t` meet no head. A row r that is left of shift t, which n of the Q
    queries ask for, has `|c_t| n = |<y, r>| <= Q max|c| max_q |r_q|`: for the largest c_t, n / Q at some query.
    """
    total, heads = len(targets), attention.heads
    if not targets.plain or heads >= total:
        return None
    least = down(Fraction(int((targets.places[:, chosen] >= 0).sum(-1).min()), int(chosen.sum())))
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


def veiled(hidden: Sequence[Refined], attention: AttentionRows) -> list[str]:
    """What is told of targets that their floats cannot tell."""
    if not hidden:
        return []
    offsets, most = len({each.target for each in hidden}), max(each.reach for each in hidden if each.reach is not None)
    left = min(each.own_floor for each in hidden)
    own = f"these numbers themselves leave at least {float(left):.1e}, " if left > 0 else ""
    return [f"{offsets} undecided by nature: {own}others within {attention.ulps} ulps of them at most {up(most):.1e}"]
