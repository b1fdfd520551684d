"""A condition divides the rows into groups, and asks whether every group has a Phi of its own."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import msgspec
import numpy as np

from conv2attn.layers.theorem import Convolution
from conv2attn.report import counted
from conv2attn.span.attention_rows import ROUNDOFF, Array, AttentionRows, Limits, Whole
from conv2attn.span.equations import Portion, Targets, kernel_targets, largest_rank, portions
from conv2attn.span.least_squares import (
    CANDIDATES,
    Factors,
    add_targets,
    factored,
    rounded_up,
    split,
    triangular,
    widened,
)
from conv2attn.span.solver import NEAR_INTEGERS, Decision, decide_targets
from conv2attn.span.span_report import Condition, ConditionName, Counting, Evidence, Target
from conv2attn.verdicts import Strength, Verdict, weakest_strength, worst_verdict

AFFORDABLE = 1000
"""At most this many groups of a target are decided one by one, worst first."""
OPEN = 20
"""After this many undecided groups of a target, no more groups are tried."""
Ranked = tuple[int | None, tuple[float | None, float | None], float | None]


def groups_of(name: ConditionName, attention: AttentionRows, targets: Targets) -> list[Whole]:
    """The groups of rows `image * queries + query` of a condition."""
    per_image = targets.places.shape[1]
    chosen = np.arange(per_image) if name in ("per-query", "joint") else np.flatnonzero(targets.interior)
    images = [image * per_image + chosen for image in range(attention.images)]
    match name:
        case "per-query":
            return [np.array([row]) for group in images for row in group]
        case "per-image":
            return [group for group in images if len(group)]
        case "joint" | "interior" | "kernel":
            return [np.concatenate(images)] if len(chosen) else []


def check(
    name: ConditionName, attention: AttentionRows, targets: Targets, limits: Limits, tight: bool = True
) -> Condition:
    """Whether each group of a condition has a Phi of its own that serves all targets.

    *holds*: some Phi within the norm has a residual that counts as zero, with all rounding included. *refuted*: it is
    proved for exactly these numbers that every Phi within the norm has a larger residual. If there are fewer heads than
    shifts, the condition is refuted too, and the residual of each tap is computed nevertheless. *undecided*: neither
    was shown, and the least residual lies between `floor` and `residual`. Unless `tight`, targets that least squares
    does not decide stay undecided.
    """
    groups = groups_of(name, attention, targets)
    if not groups or not len(targets):
        why = (
            "no query has its whole neighbourhood on the grid: nothing was checked; condition joint covers all queries"
            if len(targets)
            else "no taps"
        )
        return Condition(name, Verdict.UNDECIDED, Strength.PROVED, sentence=why)
    # Counting needs no attention: fewer heads than shifts cannot serve, whatever they attend to.
    counting = count(attention, targets, groups)
    factors: Factors | None = None
    ranked: Ranked = (None, (None, None), None)
    if len(groups) == 1:
        (group,) = groups
        decided, factors = decide_targets(attention, targets, group, limits, range(len(targets)), tight)
        results = [over_groups(targets, j, groups, [decided[j]], factors) for j in range(len(targets))]
        # A rank is reported with its margin: the last singular value that counts, and the first that is rounding.
        above, below = factors.singular[factors.kept], factors.singular[~factors.kept]
        around = (float(above[-1]) if len(above) else None, float(below[0]) if len(below) else None)
        ranked = (int(factors.kept.sum()), around, factors.threshold)
    else:
        results = in_groups(attention, targets, groups, limits, tight)
    verdict = Verdict.REFUTED if counting else worst_verdict(target.verdict for target in results)
    strength = strength_of(verdict, results, counting, attention.sampled)
    return Condition(
        name,
        verdict,
        strength,
        tuple(results),
        sum(map(len, groups)),
        *ranked,
        counting,
        sentence_of(results, counting, limits, factors, tight),
        attention.sampled,
        None if factors is None else factors.explained,
    )


def check_kernel(attention: AttentionRows, convolution: Convolution, limits: Limits, tight: bool = True) -> Condition:
    """Whether one Phi serves this convolution at its interior queries, with heads of their present width.

    If the Phi that was found needs wider heads, the condition is undecided, since another Phi might not need them (E7
    of docs/errata.md).
    """
    roundoff = ROUNDOFF[str(convolution.weight.dtype).removeprefix("torch.")]
    targets = kernel_targets(attention, convolution, roundoff)
    condition = check("kernel", attention, targets, limits, tight)
    if condition.verdict is not Verdict.HOLDS or attention.d_head is None:
        return condition
    mixing = np.array([[float(Fraction(w)) for w in target.weights] for target in condition.targets])
    # The lemma lets a head have any channel matrix. In a given layer its rank is at most the width of the head.
    width = largest_rank(convolution, targets, mixing, roundoff)
    allowed = attention.d_head // convolution.groups
    if width <= allowed:
        sentence = f"the widest head has rank {width}, of {allowed} allowed"
        return msgspec.structs.replace(condition, sentence=sentence)
    sentence = f"the Phi found needs heads of width {width}, and they have width {allowed}"
    return msgspec.structs.replace(condition, verdict=Verdict.UNDECIDED, sentence=sentence)


def over_groups(
    targets: Targets, j: int, groups: Sequence[Whole], decisions: Sequence[Decision], factors: Factors | None
) -> Target:
    """The result for a target over its groups, from `decisions`, of which the last is the worst."""
    worst = decisions[-1]
    # One refuted group refutes the target, and its dual proves the floor, so the figures are those of this group. A
    # target that holds has the largest figures of all its groups.
    counted_in = [worst] if worst.verdict is Verdict.REFUTED else decisions
    strength = Strength.PROVED if all(decision.proved for decision in decisions) else Strength.BOUNDED
    alone = len(groups) == 1
    evidence = Evidence(dual=worst.dual) if worst.verdict is Verdict.REFUTED else None
    if worst.verdict is Verdict.HOLDS:
        evidence = Evidence(tuple(groups), tuple(decision.mixing for decision in decisions))
    return Target(
        targets.labels[j],
        worst.verdict,
        strength,
        max(decision.residual for decision in counted_in),
        max(decision.floor for decision in counted_in),
        max(decision.norm for decision in counted_in),
        tuple(str(x) if isinstance(x, Fraction) else x for x in worst.mixing) if alone else (),
        tuple(worst.dual or ()),
        targets.offsets[j] if targets.plain else None,
        None if factors is None else float(factors.distance[j]),
        worst.excluded,
        worst.stability,
        evidence,
    )


def in_groups(
    attention: AttentionRows, targets: Targets, groups: Sequence[Whole], limits: Limits, tight: bool
) -> list[Target]:
    """The result for every target over several groups.

    Least squares serves most groups; the other groups are decided one by one, worst first.
    """
    # Single rows are thousands of tiny systems, which are solved in stacks. For whole images, nothing
    # is solved yet, and the bounds on the residuals are infinite.
    single = all(len(group) == 1 for group in groups)
    mixings = np.zeros((len(groups), len(targets), attention.heads))
    residuals = np.full((len(groups), len(targets)), np.inf)
    if single:
        mixings, residuals = squares_by_row(attention, targets, np.concatenate(groups), limits)
    norms = np.abs(mixings).sum(-1)
    serves = (residuals <= limits.eps + limits.per_norm * norms) & (norms <= limits.max_phi)
    # If rows are exact fractions, their floats are rounded copies, which decide nothing about the fractions.
    serves &= not attention.exact or attention.one_hot
    results = []
    for j in range(len(targets)):
        served = {
            g: Decision(Verdict.HOLDS, float(residuals[g, j]), 0.0, tuple(mixings[g, j].tolist()), attention.one_hot)
            for g in np.flatnonzero(serves[:, j]).tolist()
        }

        def decide(g: int, j: int = j) -> Decision:
            return decide_targets(attention, targets, groups[g], limits, [j], tight)[0][j]

        decisions = worst_first(served, residuals[:, j].tolist(), decide, single)
        results.append(over_groups(targets, j, groups, decisions, None))
    return results


def squares_by_row(attention: AttentionRows, targets: Targets, rows: Whole, limits: Limits) -> tuple[Array, Array]:
    """The mixings of least squares for every single row, (rows, targets, heads), and their residuals."""
    mixings = np.zeros((len(rows), len(targets), attention.heads))
    residuals = np.zeros((len(rows), len(targets)))
    # `place` maps a row to the index of its result: rows 4, 6, 9 have the places 0, 1, 2.
    place = np.zeros(int(rows.max()) + 1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    for portion in portions(attention, targets, rows):
        step = max(1, CANDIDATES * attention.heads * len(portion.rows) // max(1, len(targets)))
        for start in range(0, len(portion.rows), step):
            few = np.arange(start, min(start + step, len(portion.rows)))
            few_mixings, few_residuals = of_least_squares(targets, portion.only(few), limits)
            # A row of the portion represents all rows of its kind, so all of them get its result.
            members = np.flatnonzero(np.isin(portion.kind, few))
            at = place[portion.members[members]]
            kind = portion.kind[members] - start
            mixings[at], residuals[at] = few_mixings[kind], few_residuals[kind]
    return mixings, residuals


def worst_first(
    served: dict[int, Decision], bounds: Sequence[float], decide: Callable[[int], Decision], single: bool
) -> list[Decision]:
    """The decisions on groups, the worst last.

    Groups that are not in `served` are decided until further groups would not change the verdict.

    Args:
        served: the decisions on the groups that least squares serves.
        bounds: for every group, an upper bound on its residual.
        decide: decides a group.
        single: whether groups are single rows.
    """
    by_group, decisions_tried = dict(served), list[Decision]()

    def of_verdict(verdict: Verdict) -> list[Decision]:
        return [decision for decision in decisions_tried if decision.verdict is verdict]

    # One refuted group refutes the condition, so groups with the largest bounds are decided first.
    order = sorted((g for g in range(len(bounds)) if g not in served), key=lambda g: -bounds[g])
    for g in order[:AFFORDABLE]:
        by_group[g] = decide(g)
        decisions_tried.append(by_group[g])
        refuted = of_verdict(Verdict.REFUTED)
        if len(of_verdict(Verdict.UNDECIDED)) >= OPEN or (single and len(refuted) >= OPEN):
            break
        # The report names the refuted group with the largest residual. No later group is worse if all later bounds are
        # below this residual. Whole images have no bounds, so all of them are decided.
        behind = max((bounds[h] for h in range(len(bounds)) if h not in by_group), default=0.0)
        if refuted and max(decision.residual for decision in refuted) >= behind:
            break
    decisions = [by_group[g] for g in sorted(by_group)]
    refuted, undecided = of_verdict(Verdict.REFUTED), of_verdict(Verdict.UNDECIDED)
    if refuted:
        return [*decisions, max(refuted, key=lambda decision: decision.residual)]
    # A group that was not decided might be refuted, so the condition is undecided.
    if undecided or len(by_group) < len(bounds):
        worst = max(undecided or decisions_tried, key=lambda decision: decision.residual)
        return [*decisions, replace(worst, verdict=Verdict.UNDECIDED, dual=None, stability=None)]
    return decisions


def of_least_squares(targets: Targets, portion: Portion, limits: Limits) -> tuple[Array, Array]:
    """For every row of a portion, the least-squares mixings within the norm (rows, targets, heads), with residuals."""
    heads = len(portion.attention)
    # As in `least_squares.triangle`, keys without a target are factored first: their factor has fewer columns.
    rest, target_columns = split(portion, targets.coefficients)
    rest_factor = widened(triangular(rest.transpose(1, 2, 0)), len(targets))
    factor = triangular(np.concatenate([rest_factor, target_columns], 1))
    mixings = factored(factor, heads, limits.max_phi).bounded
    # One-hot heads have mixings of 0 and 1, and a residual of exactly 0, which rounded mixings would miss.
    near = np.round(mixings)
    mixings = np.where(np.abs(near - mixings).max(-1, keepdims=True) <= NEAR_INTEGERS, near, mixings)
    remainders = -mixings @ portion.attention.swapaxes(0, 1)
    add_targets(remainders.swapaxes(0, 1), portion, targets.coefficients)
    residuals = np.abs(remainders, out=remainders).sum(-1)
    # Least squares minimises the 2-norm. Its remainder may have a larger 1-norm than the target, the remainder of 0.
    target_norms = (np.abs(targets.coefficients) @ (portion.places >= 0)).T
    mixings = np.where((residuals < target_norms)[..., None], mixings, 0.0)
    residuals = np.minimum(residuals, target_norms)
    row_sum, width = float(portion.attention.sum(-1).max()) * (1 + 1e-9), portion.attention.shape[2]
    return mixings, rounded_up(residuals, mixings, targets.coefficients, targets.largest, row_sum, width)


def strength_of(verdict: Verdict, results: Sequence[Target], counting: Counting | None, sampled: bool) -> Strength:
    """The strength of the verdict. One refuted target refutes a condition, but all targets must hold for it to hold."""
    strengths = [target.strength for target in results if target.verdict is verdict]
    if counting or (verdict is Verdict.REFUTED and Strength.PROVED in strengths):
        return Strength.PROVED
    if sampled and verdict is Verdict.HOLDS:
        return Strength.SAMPLED
    return weakest_strength(strengths)


def count(attention: AttentionRows, targets: Targets, groups: Sequence[Whole]) -> Counting | None:
    """The refutation by counting; None if there are enough heads, or no query has all shifts on the grid.

    If there are fewer heads than shifts, and all shifts are on the grid at one query, every Phi has a residual of at
    least 1 for some shift there, which is that of a layer without heads (claim TAPS, TAPS_far). No limit changes this,
    since every residual that counts as zero is below 1.
    """
    # TAPS is about shifts. Combinations of shifts may depend on each other, and then need fewer heads.
    if not targets.plain or attention.heads >= len(targets):
        return None
    rows = np.concatenate(groups)
    seeing = rows[targets.interior[rows % targets.places.shape[1]]]
    return Counting(attention.heads, len(targets), int(seeing[0])) if len(seeing) else None


def sentence_of(
    results: Sequence[Target], counting: Counting | None, limits: Limits, factors: Factors | None, tight: bool
) -> str:
    """Notes beyond the figures: counting, norms that are too large, and the first undecided target."""
    parts = []
    if counting:
        few = f"{counted(counting.heads, 'head')} cannot span {counting.targets} shifts"
        parts.append(f"{few}: for some shift they are no better than a layer without heads (TAPS_far)")
    needed = 0.0 if factors is None else float(np.abs(factors.plain).sum(-1).max())
    if needed > limits.max_phi and any(target.verdict is not Verdict.HOLDS for target in results):
        beyond = f"which is above {limits.max_phi:g} and of no practical use: it does not count"
        parts.append(f"least squares needs a Phi of norm {needed:.1e}, {beyond}")
    refuted = [target for target in results if target.verdict is Verdict.REFUTED and target.dual_rows]
    if factors is None and refuted and not counting:
        worst = max(refuted, key=lambda target: target.floor)
        parts.append(f"query {worst.dual_rows[0]} does not reach {worst.label}")
    for target in results:
        if target.verdict is Verdict.UNDECIDED:
            parts.append(why_open(target, limits) + ("" if tight else "; --tight solves a linear programme"))
            break
    return "; ".join(parts)


def why_open(target: Target, limits: Limits) -> str:
    """Why a target is undecided, and what would decide it."""
    ends = f"the least residual is between {target.floor:.2g} and {target.residual:.2g}"
    reach = float(target.excluded or 0.0)
    if limits.per_norm and 0 < reach < limits.max_phi:
        lets = limits.allowed(limits.max_phi)
        beyond = f"at norm {limits.max_phi:.3g}, a residual of {lets:.1e} counts as rounding"
        why = f"no Phi of norm up to {reach:.3g} serves; {beyond}"
        return f"{target.label} is undecided: {why} (--max-phi {reach:.3g} refutes it)"
    return f"{target.label} is undecided: {ends}"
