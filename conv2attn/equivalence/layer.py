"""The row of one layer: geometry, weights and leak, each decided for all inputs; rounding, bounded."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.attention.probes import SPIKE, indirect_convolution
from conv2attn.basis import AttentionGrid
from conv2attn.equivalence.bases import Pair
from conv2attn.equivalence.certificate import Row
from conv2attn.equivalence.differential import Measured
from conv2attn.equivalence.error_analysis import difference_bounds, overflow
from conv2attn.equivalence.finding import Finding, holds, refuted, undecided
from conv2attn.equivalence.layers import compare_maps
from conv2attn.equivalence.leak import check_leaks
from conv2attn.verdicts import Strength, Verdict

HALF = (torch.float16, torch.bfloat16)


def certify_layer(
    name: str,
    signature: str,
    pair: Pair,
    seen: Measured,
    attention: MultiHeadSelfAttention | None,
    *,
    exactly: bool = True,
) -> Row:
    """Whether two layers are the same map, and whether the measured difference is within its bound.

    Unless `exactly`, weights and leak do not decide: without the same geometry there is only no bound.
    """
    original, converted = pair.original, pair.converted
    maps = compare_maps(original, converted)
    leaking, leak = check_leaks(original, converted)
    findings = [*maps, leaking] if exactly else within_a_tolerance(maps)
    row = Row(name, signature, (), grid=seen.grid or None, leak=leak, **numbers_of(attention, seen))
    if seen.calls and all(finding.part != "support" for finding in findings):
        placed = maps[0].verdict is Verdict.HOLDS
        beyond = overflow(pair, 0, seen.input_range)
        if not beyond and math.isfinite(seen.max_error):
            beyond = overflow(pair, 1, seen.input_range)
        sides = tuple(converted.padding.sides(seen.sides))
        bounds = difference_bounds(pair, seen.input_range, sides) if placed and not beyond else None
        bound = None if bounds is None else max(bounds, default=0.0)
        findings.append(judge_measured(seen, bound, placed, beyond))
        kept = None if seen.spread > 0 or not bounds else bound
        row = replace(row, input_range=seen.input_range, max_error=seen.max_error, bound=kept)
    return replace(row, findings=tuple(findings), strength=strength_of(tuple(findings)))


def within_a_tolerance(maps: list[Finding]) -> list[Finding]:
    """The findings that count beside a tolerance: other pixels are no bound, and refute nothing by themselves."""
    counting = (each for each in maps if len(maps) == 1 or each.part == "geometry")
    return [
        replace(each, verdict=Verdict.UNDECIDED) if (each.part, each.verdict) == ("geometry", Verdict.REFUTED) else each
        for each in counting
    ]


def numbers_of(layer: MultiHeadSelfAttention | None, seen: Measured) -> dict[str, Any]:
    """The numbers of an attention layer in its row; none of another layer."""
    if layer is None:
        return {}
    alpha = getattr(layer.encoding, "alpha", None)
    return {
        "heads": layer.heads,
        "d_head": layer.d_head,
        "alpha": alpha.min().item() if isinstance(alpha, Tensor) else None,
        "parameters": sum(parameter.numel() for parameter in layer.parameters()),
        "memory_saved": dense_memory(layer, seen.sides) if seen.calls else None,
    }


def dense_memory(layer: MultiHeadSelfAttention, sides: tuple[int, ...]) -> int:
    """The bytes of the dense attention of one image: heads x queries x keys."""
    queries, keys = AttentionGrid(layer.padding.sides(sides), layer.sites).shape
    itemsize = 8 if next(layer.encoding.parameters()).dtype.itemsize == 8 else 4
    return layer.heads * queries * keys * itemsize


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
    if seen.like is not None and seen.like.device.type == "cpu" and seen.like.dtype in HALF:
        fault = f"of which kernels for {seen.like.dtype} on a CPU, the original's too, are not always within"
        return undecided("measured", "C2A404", f"{sentence}, {fault}")
    return refuted("measured", "C2A404", sentence)


def strength_of(findings: tuple[Finding, ...]) -> Strength:
    """The strength of the claim for all inputs: that of the weakest part, what was measured apart."""
    order = list(Strength)
    deciding = [finding.strength for finding in findings if finding.part != "measured"]
    return max(deciding, key=order.index, default=Strength.SAMPLED)
