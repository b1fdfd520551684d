"""One condition decided: one Phi for all chosen queries, within its norm."""

from array import array
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from conv2attn.bounds import down, up
from conv2attn.span.conditions.condition import Condition, Counting, DualVector, Mixing, Target
from conv2attn.span.conditions.limits import Limits
from conv2attn.span.conditions.portions import shared
from conv2attn.span.conditions.problem import Array, AttentionRows, Targets
from conv2attn.span.programme.cuts import look
from conv2attn.span.programme.factors import NEGLIGIBLE, factors_of
from conv2attn.span.programme.search import NEAR_INTEGERS, Search, run
from conv2attn.span.rational.containment import decide_exactly, residual_of
from conv2attn.span.rational.exact import Exactly
from conv2attn.verdicts import Strength, Verdict, weakest_strength, worst_verdict


def decide(
    name: str, attention: AttentionRows, targets: Targets, chosen: NDArray[np.bool_], limits: Limits
) -> Condition:
    """Whether one Phi serves all chosen queries of all images.

    *holds*: a Phi within the norm was found whose residual, with all rounding, counts as none. *refuted*: exactly for
    these numbers, every Phi within the norm leaves more. *undecided*: neither was shown, and `floor` and `residual` are
    the ends of what is open.
    """
    queries = int(chosen.sum()) * attention.images
    if not queries or not len(targets):
        why = "no query has its whole neighbourhood on the grid: nothing was checked" if not queries else "no taps"
        return Condition(name, Verdict.UNDECIDED, Strength.PROVED, (), 0, sentence=why)
    factors = factors_of(attention, targets, chosen, limits.max_phi)
    exactly = decide_exactly(attention, targets, chosen)
    settled = [j for j in range(len(targets)) if settles(exactly[j], limits)]
    searches = run(attention, targets, chosen, limits, factors, [j for j in range(len(targets)) if j not in settled])
    left = dict(
        zip(
            settled,
            look(
                shared(attention, targets, chosen),
                targets,
                attention.width,
                factors.bounded[settled],
                np.array(settled, int),
                0,
            )[0],
            strict=True,
        )
    )
    found = []
    for j in range(len(targets)):
        known = exactly[j]
        if j in left and known is not None:
            target = of_exactly(j, targets.labels[j], known, factors.bounded[j], float(left[j]))
        else:
            target = judge(searches[j], attention, targets, chosen, limits)
        offset = (targets.offsets[j] or None) if targets.plain else None
        contained = known.contained if known is not None else None
        found.append(replace(target, exactly=contained, offset=offset, distance=float(factors.distance[j])))
    counting = count(attention, targets, chosen, limits)
    verdict = Verdict.REFUTED if counting else worst_verdict(target.verdict for target in found)
    strength = strength_of(verdict, found, counting, attention.sampled)
    threshold = NEGLIGIBLE * float(factors.singular[0])
    above, below = factors.singular[factors.singular > threshold], factors.singular[factors.singular <= threshold]
    around = (float(above[-1]) if len(above) else None, float(below[0]) if len(below) else None)
    needed = float(np.abs(factors.plain).sum(-1).max())
    sentence = say(attention, found, counting, limits, needed)
    numbers = (len(above), around, threshold, counting, sentence, attention.sampled, factors.explained)
    return Condition(name, verdict, strength, tuple(found), queries, *numbers)


def settles(known: Exactly | None, limits: Limits) -> bool:
    """Whether what is known exactly decides within these limits."""
    if known is None:
        return False
    if known.contained:
        return known.norm <= limits.max_phi
    return known.floor > Fraction(limits.allowed(limits.max_phi))


def of_exactly(j: int, label: str, known: Exactly, mixing: Array, left: float) -> Target:
    """A target that exact equations decide; `left` is what the mixing of least squares leaves."""
    if known.contained:
        witness = Mixing(j, known.weights)
        numbers = (0.0, 0.0, up(known.norm), known.weights)
        return Target(label, Verdict.HOLDS, Strength.PROVED, *numbers, witness)
    weights, norm, floor = tuple(map(float, mixing)), float(np.abs(mixing).sum()), down(known.floor)
    return Target(label, Verdict.REFUTED, Strength.PROVED, max(left, floor), floor, norm, weights, known.null)


def judge(
    search: Search, attention: AttentionRows, targets: Targets, chosen: NDArray[np.bool_], limits: Limits
) -> Target:
    """The target of a search; of rows that are declared exact, what holds is counted in fractions once more."""
    norm = float(np.abs(search.mixing).sum())
    if attention.exact:
        given = (attention, targets, chosen, search.target)
        exactly = residual_of(*given, search.mixing.tolist())
        near = np.round(search.mixing)
        if exactly and np.abs(near - search.mixing).max() <= NEAR_INTEGERS and not residual_of(*given, near.tolist()):
            exactly, search.mixing, norm = Fraction(0), near, float(np.abs(near).sum())
        search.residual = up(exactly)
        search.holds = exactly <= Fraction(limits.allowed(norm)) and norm <= limits.max_phi
    strength = Strength.PROVED if attention.exact else Strength.BOUNDED
    return target_of(search, targets.labels[search.target], strength)


def target_of(search: Search, label: str, strength: Strength) -> Target:
    """The target as a search has left it."""
    weights, norm = tuple(map(float, search.mixing)), float(np.abs(search.mixing).sum())
    numbers = (search.residual, min(max(search.floor, 0.0), search.residual), norm, weights)
    if search.holds:
        return Target(label, Verdict.HOLDS, strength, *numbers, Mixing(search.target, weights))
    if not search.refuted or search.dual is None:
        return Target(label, Verdict.UNDECIDED, strength, *numbers, None)
    values = tuple((row, compact(y)) for row, y in sorted(search.dual.values.items()))
    bound = search.inverse
    held = None if bound is None else (bound.rows, bound.inverse)
    return Target(
        label, Verdict.REFUTED, strength, *numbers, DualVector(search.target, values, held), stability=stability(search)
    )


def compact(numbers: Sequence[int]) -> Sequence[int]:
    """Integers in 8 bytes each, where they fit."""
    return array("q", numbers) if max(map(abs, numbers)) < 2**63 else tuple(numbers)


def stability(search: Search) -> float:
    """How far every entry may move, as a share of itself, before the dual that refutes fails."""
    dual, limits = search.dual, search.limits
    assert dual is not None
    within = search.inverse.within(limits) if search.inverse is not None else None
    norm = Fraction(limits.max_phi) if within is None else min(within, Fraction(limits.max_phi))
    spare = dual.gain - norm * dual.met - (Fraction(limits.eps) + Fraction(limits.per_norm) * norm) * dual.peak
    return down(max(Fraction(0), spare / (norm * dual.weight))) if dual.weight else 0.0


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
    return Counting(heads, total, least) if least > limits.allowed(limits.max_phi) else None


def say(
    attention: AttentionRows, found: Sequence[Target], counting: Counting | None, limits: Limits, needed: float
) -> str:
    """Notes beyond the figures; `needed` is the norm of Phi by least squares."""
    parts = []
    if counting:
        parts.append(f"{counting.heads} heads cannot span {counting.targets} shifts")
    if needed > limits.max_phi and any(target.verdict is not Verdict.HOLDS for target in found):
        beyond = f"beyond {limits.max_phi:g} and of no practical use"
        parts.append(f"least squares needs a Phi of norm {needed:.1e}, {beyond}: not counted")
    exactly = [target.exactly for target in found if target.exactly is not None]
    if exactly and not attention.one_hot:
        parts.append(f"the ideal operator spans {sum(exactly)} of {len(found)} exactly")
    open_still = [target for target in found if target.verdict is Verdict.UNDECIDED]
    if open_still:
        ends = f"{min(t.floor for t in open_still):.2g} to {max(t.residual for t in open_still):.2g}"
        parts.append(f"{len(open_still)} undecided: the least residual lies within {ends}")
    return "; ".join(parts)
