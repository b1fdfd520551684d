"""How much of a head's mass leaks off its target, against the unit roundoff."""

import math
from dataclasses import replace

from conv2attn.attention.probes import exponential_underflows
from conv2attn.bounds import format_of, leak_reached, one_hot_threshold
from conv2attn.equivalence.computed.arithmetic import gradual_underflow
from conv2attn.equivalence.readings.finding import Finding, holds, refuted, undecided
from conv2attn.equivalence.readings.places import attend_alike
from conv2attn.equivalence.readings.positions import LONGEST_RADIX, Positions
from conv2attn.equivalence.readings.reading import Reading
from conv2attn.models.conversion.outcomes import SURE_ALPHA
from conv2attn.report import counted
from conv2attn.verdicts import Strength


def check_leaks(original: Reading, converted: Reading) -> tuple[Finding, float]:
    """The finding on whichever of the two leaks more, and how much: a soft original is not what its targets say.

    Attention that attends alike on both sides leaks alike, and nothing is asked of it.
    """
    (ours, own), (theirs, leak) = check_leak(original), check_leak(converted)
    if leak and attend_alike(original, converted):
        return holds("leak"), leak
    if own <= leak:
        return theirs, leak
    return replace(ours, sentence=ours.sentence and f"in the original, {ours.sentence}"), own


@gradual_underflow()
def check_leak(converted: Reading) -> tuple[Finding, float]:
    """Whether the mass that leaks off every target is at most the unit roundoff, and the largest such mass.

    Proved where every other weight is exactly 0 as computed on this device, else bounded; for centres between pixels
    and targets beyond the grid too, where the target is the nearest key.
    """
    positions, kind = converted.positions, converted.format
    if positions is None or not positions.alphas:
        return holds("leak"), 0.0
    total = counted(len(positions.alphas), "head")
    bad = [head for head in converted.working if not 0 < positions.alphas[head] < math.inf]
    if bad:
        told = f"head {bad[0]} has alpha = {positions.alphas[bad[0]]!r}, which is not positive and finite"
        return refuted("leak", "C2A403", f"{told} ({len(bad)} of {total})"), 1.0
    heads = positions.distinct(converted.working)
    computed = [positions.computed_leak(head, kind) for head in heads]
    if not any(computed):
        device = next(w for w in (converted.weights.output, converted.weights.value) if w is not None).device.type
        if exponential_underflows(one_hot_threshold(kind), converted.dtype, device):
            return holds("leak"), 0.0
    leaks = [max(leak, positions.leak(head)) for leak, head in zip(computed, heads, strict=True)]
    most = max(leaks)
    worst, roundoff = heads[leaks.index(most)], format_of(kind).unit_roundoff
    alpha = positions.alphas[worst]
    if most <= roundoff:
        told = f"alpha = {alpha:g} leaves up to {most:.3g} of a head's mass to other keys"
        return holds("leak", Strength.BOUNDED, *(("C2A131", told) if alpha < SURE_ALPHA else ())), most
    order = sorted(heads, key=lambda head: head != worst)
    if certain := {head: told for head in order if (told := certain_leak(positions, head, roundoff))}:
        head, told = next(iter(certain.items()))
        many = f"{sum(alike(converted, each) for each in certain)} of {total}"
        return refuted("leak", "C2A403", f"head {head} {told}; the roundoff of {kind} is {roundoff:.3g} ({many})"), most
    apart = f", centred {max(positions.shifts[worst]):.3g} from the pixel" if any(positions.shifts[worst]) else ""
    return undecided("leak", "C2A403", f"the leak of alpha = {alpha:g}{apart} is within {most:.3g}"), most


def alike(reading: Reading, head: int) -> int:
    """How many of the heads that do anything leak as this one does."""
    positions = reading.positions
    assert positions is not None
    profiles = list(zip(positions.alphas, positions.shifts, positions.distances, strict=True))
    return sum(profiles[each] == profiles[head] for each in reading.working)


def certain_leak(positions: Positions, head: int, roundoff: float) -> str:
    """What shows that some query of a head leaks more than the roundoff on some grid, or nothing if it is not certain.

    Along an axis before the last an enumeration multiplies a shift by the width of the grid: one of 2^-20 or more is
    beyond half a pixel on grids with sides below 2^24, whatever the shifts along the axes behind it.
    """
    shift, alpha = max(positions.shifts[head]), positions.alphas[head]
    if positions.by_enumeration and shift >= LONGEST_RADIX * 2.0**-20:
        return "is centred between pixels, and on wide grids the enumeration makes other pixels of that"
    if shift > 0.5:
        return ""
    least = leak_reached(alpha, positions.shifts[head])
    if not least > roundoff:
        return ""
    where = f"is centred {shift:.3g} from the nearest pixel and " if shift else ""
    return f"{where}leaks at least {least:.3g} of its mass at alpha = {alpha:g}"
