"""The attention mass that heads leak off their targets, against the unit roundoff."""

import math
from collections import Counter
from dataclasses import replace

from conv2attn.attention.probes import exponential_underflows
from conv2attn.basis import Basis
from conv2attn.bounds import format_of, leak_reached, one_hot_threshold
from conv2attn.equivalence.arithmetic import gradual_underflow
from conv2attn.equivalence.bases import format_of_weights, working_heads
from conv2attn.equivalence.finding import Finding, holds, refuted, undecided
from conv2attn.equivalence.heads import SoftHead, heads_of
from conv2attn.equivalence.tap_sums import attend_alike
from conv2attn.models.conversion.outcomes import SURE_ALPHA
from conv2attn.report import counted
from conv2attn.verdicts import Strength


def check_leaks(original: Basis, converted: Basis) -> tuple[Finding, float]:
    """The finding on the layer of the two that leaks more, and an upper bound on that leak.

    Two attentions with equal scores leak alike, whatever their leak is.
    """
    (ours, own), (theirs, leak) = check_leak(original), check_leak(converted)
    if leak and attend_alike(original, converted):
        return holds("leak"), leak
    if own <= leak:
        return theirs, leak
    return replace(ours, sentence=ours.sentence and f"in the original, {ours.sentence}"), own


@gradual_underflow()
def check_leak(basis: Basis) -> tuple[Finding, float]:
    """Whether every head leaks at most the unit roundoff, and an upper bound on the largest leak.

    Proved where every weight off the targets is exactly 0 as computed on this device, otherwise bounded; also for
    centres between pixels, and for targets off the grid, where the target is the nearest key.
    """
    every, kind = heads_of(basis), format_of_weights(basis)
    if not every:
        return holds("leak"), 0.0
    working, total = working_heads(basis), counted(len(every), "head")
    bad = [head for head in working if not 0 < every[head].alpha < math.inf]
    if bad:
        sentence = f"head {bad[0]} has alpha = {every[bad[0]].alpha!r}, which is not positive and finite"
        return refuted("leak", "C2A403", f"{sentence} ({len(bad)} of {total})"), 1.0
    counts = Counter(every[head] for head in working)
    computed = {head: head.computed_leak(kind) for head in counts}
    like, threshold = basis.weights.stored, one_hot_threshold(kind)
    if not any(computed.values()) and exponential_underflows(threshold, like.dtype, like.device.type):
        return holds("leak"), 0.0
    leaks = {head: max(leak, head.leak()) for head, leak in computed.items()}
    worst = max(leaks, key=lambda head: leaks[head])
    most, roundoff = leaks[worst], format_of(kind).unit_roundoff
    if most <= roundoff:
        sentence = f"alpha = {worst.alpha:g} leaves up to {most:.3g} of a head's mass to other keys"
        return holds("leak", Strength.BOUNDED, *(("C2A131", sentence) if worst.alpha < SURE_ALPHA else ())), most
    order = sorted(counts, key=lambda head: head != worst)
    if certain := {head: reason for head in order if (reason := certain_leak(head, roundoff))}:
        head, reason = next(iter(certain.items()))
        many = f"{sum(counts[each] for each in certain)} of {total}"
        first = next(number for number in working if every[number] == head)
        sentence = f"head {first} {reason}; the roundoff of {kind} is {roundoff:.3g} ({many})"
        return refuted("leak", "C2A403", sentence), most
    apart = f", centred {max(worst.shifts):.3g} from the pixel" if any(worst.shifts) else ""
    sentence = f"the leak of alpha = {worst.alpha:g}{apart} is within {most:.3g}"
    unknown = "the leak of enumerated heads off the pixels, or off the grid, is not known"
    return undecided("leak", "C2A403", sentence if max(worst.shifts) <= 0.5 else unknown), most


def certain_leak(head: SoftHead, roundoff: float) -> str:
    """Why some query of a head certainly leaks more than the roundoff on some grid; empty if that is not certain."""
    shift = max(head.shifts)
    if shift > 0.5:
        return ""
    least = leak_reached(head.alpha, head.shifts)
    if not least > roundoff:
        return ""
    where = f"is centred {shift:.3g} from the nearest pixel and " if shift else ""
    return f"{where}leaks at least {least:.3g} of its mass at alpha = {head.alpha:g}"
