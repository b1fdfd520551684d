"""How much of a head's mass leaks off its target, against the unit roundoff."""

import math

from conv2attn.attention.probes import exponential_underflows
from conv2attn.bounds import (
    computed_leak,
    format_of,
    leak_at_least,
    leaked_mass,
    leaked_mass_diagonal,
    one_hot_threshold,
)
from conv2attn.certificates.finding import Finding, holds, refuted, undecided
from conv2attn.certificates.reading import Reading
from conv2attn.models.rows import SURE_ALPHA
from conv2attn.verdicts import Strength


def check_leak(converted: Reading) -> tuple[Finding, float]:
    """Whether the mass that leaks off every target is at most the unit roundoff, and the largest such mass.

    Proved where every other weight is exactly 0 as computed on this device, else bounded.
    """
    if not converted.alphas:
        return holds("leak"), 0.0
    bad = [alpha for alpha in converted.alphas if not 0 < alpha < math.inf]
    if bad:
        return refuted("leak", "C2A403", f"alpha = {bad[0]!r} is not positive and finite"), 1.0
    alpha, kind, axes = min(converted.alphas), converted.format, converted.leak_axes
    roundoff = format_of(kind).unit_roundoff
    if any(converted.apart):
        return check_apart(converted, roundoff)
    leak = computed_leak(alpha, axes, kind)
    if leak == 0:
        device = next(w for w in (converted.weights.output, converted.weights.value) if w is not None).device.type
        if exponential_underflows(one_hot_threshold(kind), converted.dtype, device):
            return holds("leak"), 0.0
    most = max(leak, leaked_mass(alpha, axes))
    if most <= roundoff:
        told = f"alpha = {alpha:g} leaves up to {most:.3g} of a head's mass to other keys"
        return holds("leak", Strength.BOUNDED, *(("C2A131", told) if alpha < SURE_ALPHA else ())), most
    least = leak_at_least(alpha, (2,) * axes)
    if least > roundoff:
        head = converted.alphas.index(alpha)
        sentence = f"head {head} leaks at least {least:.3g} of its mass at alpha = {alpha:g}"
        return refuted("leak", "C2A403", f"{sentence}; the roundoff of {kind} is {roundoff:.3g}"), most
    return undecided("leak", "C2A403", f"the leak of alpha = {alpha:g} is within {most:.3g}"), most


def check_apart(converted: Reading, roundoff: float) -> tuple[Finding, float]:
    """The same for centres between pixels: the nearest pixel's rival weighs exp(-alpha (1 - 2 f)) of it at least."""
    pairs = list(zip(converted.apart, converted.alphas, strict=True))
    rivals = [math.exp(-alpha * (1 - 2 * apart)) for apart, alpha in pairs]
    head = rivals.index(max(rivals))
    apart, alpha = pairs[head]
    most = leaked_mass_diagonal([alpha] * converted.leak_axes, [apart] * converted.leak_axes)
    sentence = f"head {head} is centred {apart:.3g} from the nearest pixel"
    least = 0.99 * rivals[head] / (1 + rivals[head])
    if least > roundoff:
        return refuted("leak", "C2A403", f"{sentence} and leaks at least {least:.3g} of its mass"), most
    return undecided("leak", "C2A403", f"{sentence}; its mass as computed is not bounded here"), most
