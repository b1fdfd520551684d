"""Bounds the leak of a head's mass to other keys, and compares it with the unit roundoff."""

import math
from collections import Counter

import msgspec
import torch

from conv2attn.equality.certificate.results import Finding, holds, refuted, undecided
from conv2attn.equality.layers.bases import (
    channels,
    format_of_weights,
    gradual_underflow,
    heads_of,
    working_heads,
)
from conv2attn.equality.layers.exact_sums import Keys, differences_of_sums
from conv2attn.layers.attention import ENGINES
from conv2attn.layers.attention.measured_arithmetic import arithmetics
from conv2attn.layers.attention.probes import exponential_underflows
from conv2attn.networks.conversion.outcomes import SURE_ALPHA
from conv2attn.report import counted
from conv2attn.theory.basis import Basis, Shift
from conv2attn.theory.bounds import Claimed, Head, claims_of, format_of, leak_reached, one_hot_threshold
from conv2attn.verdicts import Strength


def attend_alike(original: Basis, converted: Basis) -> bool:
    """Whether both are attention, and heads with equal scores have equal sums of taps, which makes both one map."""
    if type(original.operators) is not type(converted.operators):
        return False
    if (original.form, original.padding) != (converted.form, converted.padding):
        return False
    if channels(original) != channels(converted) or original.weights.stored.dtype != converted.weights.stored.dtype:
        return False
    ours, theirs = scores_of(original), scores_of(converted)
    return (
        bool(ours or theirs)
        and not differences_of_sums(original, converted, tuple(dict.fromkeys((*ours, *theirs))), (ours, theirs)).any()
    )


def scores_of(basis: Basis) -> Keys:
    """For each softmax head its start, and the numbers that decide its scores, such as alpha; empty for shifts."""
    if isinstance(basis.operators, Shift):
        return ()
    numbers = torch.cat([value.cpu().double().reshape(len(value), -1) for value in basis.operators.values], 1)
    return tuple(zip(basis.starts, map(tuple, numbers.tolist()), strict=True))


def check_leaks(original: Basis, converted: Basis) -> tuple[Finding, Claimed]:
    """The finding on the layer that leaks more, and an upper bound on its leak.

    Two attentions with equal scores have equal leaks, and pass.
    """
    (ours, own), (theirs, leak) = check_leak(original), check_leak(converted)
    # Two layers that leak the same mass to the same keys are one map, however soft.
    if leak and attend_alike(original, converted):
        return holds("leak"), leak
    if own <= leak:
        return theirs, leak
    return msgspec.structs.replace(ours, sentence=ours.sentence and f"in the first network, {ours.sentence}"), own


@gradual_underflow()
def check_leak(basis: Basis) -> tuple[Finding, Claimed]:
    """Whether every head leaks at most the unit roundoff, and an upper bound on the largest leak.

    Proved where every weight off the targets is exactly 0 as computed on this device, otherwise bounded. Centres may
    lie between pixels. If a target is off the grid, the nearest key counts as the target.
    """
    every, kind = heads_of(basis), format_of_weights(basis)
    if not every:
        return holds("leak"), Claimed(0.0)
    working = working_heads(basis)
    bad = [head for head in working if not 0 < every[head].alpha < math.inf]
    if bad:
        sentence = f"head {bad[0]} has alpha = {every[bad[0]].alpha!r}, which is not positive and finite"
        return refuted("leak", "C2A403", f"{sentence} ({len(bad)} of {counted(len(every), 'head')})"), Claimed(1.0)
    # Heads with a factor of zero may leak. Equal heads have equal leaks, so each kind is tested once.
    counts = Counter(every[head] for head in working)
    like, threshold = basis.weights.stored, one_hot_threshold(kind)
    measured = (each for engine in ENGINES for each in arithmetics(engine, like.dtype, like.device.type))
    ulps = max(each.exp_ulps for each in measured)
    computed = {head: head.computed_leak(kind, ulps) for head in counts}
    # The weights off the target are 0 by a theorem about an exp that underflows. Whether exp underflows on this device
    # is measured, since a device may compute exp in another way.
    if not any(computed.values()) and exponential_underflows(threshold, like.dtype, like.device.type):
        return holds("leak"), Claimed(0.0, claims_of(*computed.values()))
    leaks = {head: Claimed(max(leak, head.leak()), claims_of(leak, head.leak())) for head, leak in computed.items()}
    worst = max(leaks, key=lambda head: leaks[head])
    most, roundoff = leaks[worst], format_of(kind).unit_roundoff
    if most <= roundoff:
        sentence = f"alpha = {worst.alpha:g} leaves up to {most:.3g} of a head's mass to other keys"
        return holds("leak", Strength.BOUNDED, *(("C2A131", sentence) if worst.alpha < SURE_ALPHA else ())), most
    order = sorted(counts, key=lambda head: head != worst)
    # An upper bound above the roundoff shows nothing: a leak is refuted if some query certainly has it.
    if certain := {head: reason for head in order if (reason := certain_leak(head, roundoff))}:
        head, reason = next(iter(certain.items()))
        many = f"{sum(counts[each] for each in certain)} of {counted(len(every), 'head')}"
        first = next(number for number in working if every[number] == head)
        sentence = f"head {first} {reason}; the roundoff of {kind} is {roundoff:.3g} ({many})"
        return refuted("leak", "C2A403", sentence), most
    apart = f", centred {max(worst.shifts):.3g} from the pixel" if any(worst.shifts) else ""
    sentence = f"the leak of alpha = {worst.alpha:g}{apart} is within {most:.3g}"
    unknown = "the leak of enumerated heads off the pixels, or off the grid, is not known"
    return undecided("leak", "C2A403", sentence if max(worst.shifts) <= 0.5 else unknown), most


def certain_leak(head: Head, roundoff: float) -> str:
    """The reason why some query certainly leaks more than the roundoff on some grid; empty if uncertain."""
    shift = max(head.shifts)
    if shift > 0.5:
        return ""
    least = leak_reached(head.alpha, head.shifts)
    if not least > roundoff:
        return ""
    where = f"is centred {shift:.3g} from the nearest pixel and " if shift else ""
    return f"{where}leaks at least {least:.3g} of its mass at alpha = {head.alpha:g}"
