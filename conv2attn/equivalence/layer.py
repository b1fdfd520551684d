"""The certificate of one layer: geometry, weights and leak, each decided for all inputs; rounding, bounded."""

import math
from dataclasses import dataclass
from typing import final

from conv2attn.attention.probes import SPIKE, indirect_convolution
from conv2attn.equivalence.bases import Pair
from conv2attn.equivalence.differential import Measured
from conv2attn.equivalence.error_analysis import difference_bounds, overflow
from conv2attn.equivalence.finding import Finding, holds, refuted, undecided
from conv2attn.equivalence.layers import compare_maps
from conv2attn.equivalence.leak import check_leaks
from conv2attn.verdicts import Strength, Verdict


@final
@dataclass(frozen=True)
class LayerCertificate:
    """The findings of the five parts and their numbers, for inputs up to `input_range`."""

    findings: tuple[Finding, ...]
    leak: float
    input_range: float | None = None
    max_error: float | None = None
    bounds: tuple[float, ...] = ()

    @property
    def bound(self) -> float | None:
        """The largest bound of all output channels."""
        return max(self.bounds, default=None)


def certify_layer(pair: Pair, seen: Measured, *, exactly: bool = True) -> LayerCertificate:
    """Whether two layers are the same map, and whether the measured difference is within its bound.

    Unless `exactly`, weights and leak do not decide: only the geometry has to be the same.
    """
    original, converted = pair.original, pair.converted
    maps = compare_maps(original, converted)
    leaking, leak = check_leaks(original, converted)
    findings = [*maps, leaking] if exactly else [each for each in maps if len(maps) == 1 or each.part == "geometry"]
    if any(finding.part == "support" for finding in findings) or not seen.calls:
        return LayerCertificate(tuple(findings), leak)
    placed = maps[0].verdict is Verdict.HOLDS
    sides = tuple(converted.padding.sides(seen.sides))
    beyond = overflow(pair, 0, seen.input_range)
    if not beyond and math.isfinite(seen.max_error):
        beyond = overflow(pair, 1, seen.input_range)
    usable = placed and not beyond
    bounds = difference_bounds(pair, seen.input_range, sides) if usable else None
    bound = max(bounds, default=0.0) if bounds is not None else None
    findings.append(judge_measured(seen, bound, placed, beyond))
    kept = () if seen.spread > 0 else tuple(bounds or ())
    return LayerCertificate(tuple(findings), leak, seen.input_range, seen.max_error, kept)


def judge_measured(seen: Measured, bound: float | None, same: bool, beyond: str = "") -> Finding:
    """Whether what was measured is within the bound; without a bound it decides nothing but what is not finite.

    `beyond` says why the original can overflow here, so that neither holds nor fails what is said of finite numbers.
    """
    if beyond and not seen.trouble:
        return undecided("measured", "C2A404", beyond)
    if math.isnan(seen.max_error):
        return undecided("measured", "C2A404", "the original's output is not finite on the inputs met")
    if seen.max_error == math.inf:
        what = seen.trouble or "an output is not finite"
        return refuted("measured", "C2A404", f"on an input on which the original runs, {what}")
    if seen.spread > 0:
        trace = f"a pixel of {SPIKE:g} changes outputs that do not see it by {seen.spread:.2g}"
        sentence = f"the original is no direct sum on this device, so no bound is given: {trace}"
        if bound is None or not seen.max_error <= bound:
            return undecided("measured", "C2A404", f"{sentence}, and |error| {seen.max_error:.3g} was measured")
        return Finding("measured", Verdict.HOLDS, Strength.SAMPLED, "C2A404", sentence)
    if bound is None:
        sentence = "no bound is known to hold the measured difference against"
        return undecided("measured", "C2A404", sentence) if same else holds("measured", Strength.SAMPLED)
    if seen.max_error <= bound:
        return holds("measured", Strength.SAMPLED)
    sentence = f"|error| {seen.max_error:.3g} was measured above the bound {bound:.3g}"
    indirect = indirect_convolution(seen.like) if seen.like is not None else None
    if indirect:
        return undecided("measured", "C2A404", f"{sentence}, which does not hold here: {indirect}")
    if not seen.departure <= bound / 2:
        fault = f"the original itself is off by {seen.departure:.3g} from its own formula on this device"
        return undecided("measured", "C2A404", f"{sentence}: {fault}, so it cannot tell what is right")
    return refuted("measured", "C2A404", sentence)


def strength_of(findings: tuple[Finding, ...]) -> Strength:
    """The strength of the claim for all inputs: that of the weakest part, what was measured apart."""
    order = list(Strength)
    deciding = [finding.strength for finding in findings if finding.part != "measured"]
    return max(deciding, key=order.index, default=Strength.SAMPLED)
