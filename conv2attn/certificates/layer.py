"""The certificate of one layer: geometry, weights and leak, each decided for all inputs; rounding, bounded."""

from collections import Counter
from dataclasses import dataclass
from typing import final

import torch

from conv2attn.attention.hardness import FORMATS
from conv2attn.bounds import (
    RoundingBound,
    computed_leak,
    convolution_bound,
    difference_bound,
    dot_product_terms,
    format_of,
    hard_mixing_bound,
    leak_at_least,
    leaked_mass,
    target_rounds_to_one_threshold,
)
from conv2attn.certificates.reading import Reading
from conv2attn.verdicts import Strength, Verdict


@final
@dataclass(frozen=True)
class Finding:
    """What one part of a certificate found: a verdict, and for all but `holds` the rule and a sentence."""

    verdict: Verdict
    code: str = ""
    sentence: str = ""


HOLDS = Finding(Verdict.HOLDS)


def refuted(code: str, sentence: str) -> Finding:
    """A finding that refutes."""
    return Finding(Verdict.REFUTED, code, sentence)


def compare_geometry(original: Reading, converted: Reading) -> Finding:
    """Whether both copy the same pixels at every input size: equal affine forms, and a bijection of taps and heads."""
    if converted.between:
        return refuted("C2A401", f"head {converted.between[0]} is centred between pixels")
    if converted.strays:
        head = converted.strays[0]
        return refuted("C2A401", f"head {head} attends to {converted.offsets[head]}, which can lie off the padded grid")
    if original.geometry != converted.geometry:
        fields = [
            key
            for key in vars(original.geometry)
            if getattr(original.geometry, key) != getattr(converted.geometry, key)
        ]
        parts = [f"{f} is {getattr(converted.geometry, f)}, not {getattr(original.geometry, f)}" for f in fields]
        return refuted("C2A401", "; ".join(parts))
    if original.groups != converted.groups:
        return refuted("C2A401", f"there are {converted.groups} groups of channels, not {original.groups}")
    needed, given = Counter(original.starts), Counter(converted.starts)
    for term, place in enumerate(converted.starts):
        if given[place] > needed[place]:
            missing = next((o for o, s in zip(original.offsets, original.starts, strict=True) if s not in given), None)
            instead = f"; no head attends to {missing}" if missing is not None else ""
            return refuted("C2A401", f"head {term} attends to {converted.offsets[term]} without need{instead}")
    for term, place in enumerate(original.starts):
        if place not in given:
            return refuted("C2A401", f"no head attends to {original.offsets[term]}")
    return HOLDS


def compare_weights(original: Reading, converted: Reading) -> Finding:
    """Whether every tap and the bias are equal as numbers; heads may come in any order. Assumes equal geometry."""
    if original.taps is None or converted.taps is None:
        return Finding(
            Verdict.UNDECIDED, "C2A402", "neither W_val nor W_out is an identity, so the product is not exact"
        )
    order = [converted.starts.index(place) for place in original.starts]
    ours, theirs = converted.taps[order], original.taps
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return refuted("C2A402", f"taps are {tuple(ours.shape)} {ours.dtype}, not {tuple(theirs.shape)} {theirs.dtype}")
    wrong = ~(ours == theirs)
    if wrong.any():
        tap, out, inp = wrong.nonzero()[0].tolist()
        return refuted(
            "C2A402",
            f"{int(wrong.sum())} weights differ, the first in the tap at {original.offsets[tap]}, output channel "
            f"{out}, input channel {inp}: {ours[tap, out, inp].item()!r}, not {theirs[tap, out, inp].item()!r}",
        )
    zero = torch.zeros(theirs.shape[1], dtype=theirs.dtype, device=theirs.device)
    biases = [zero if side.bias is None else side.bias for side in (converted, original)]
    wrong = ~(biases[0] == biases[1]) if biases[0].shape == biases[1].shape else torch.ones(1, dtype=torch.bool)
    if wrong.any():
        channel = int(wrong.nonzero()[0])
        return refuted(
            "C2A402",
            f"{int(wrong.sum())} biases differ, the first in output channel {channel}: "
            f"{biases[0][channel].item()!r}, not {biases[1][channel].item()!r}",
        )
    return HOLDS


def check_leak(converted: Reading, kind: str) -> tuple[Finding, Strength, float]:
    """Whether the mass that leaks off the targets is at most the unit roundoff; the strength; the largest leak."""
    if not converted.alphas:
        return HOLDS, Strength.PROVED, 0.0
    bad = [alpha for alpha in converted.alphas if not 0 < alpha < float("inf")]
    if bad:
        return refuted("C2A403", f"alpha = {bad[0]!r} is not positive and finite"), Strength.PROVED, 1.0
    alpha, u = min(converted.alphas), format_of(kind).unit_roundoff
    leak = computed_leak(alpha, converted.leak_axes, kind)
    if leak == 0:
        return HOLDS, Strength.PROVED, 0.0
    ideal = leaked_mass(alpha, converted.leak_axes)
    if max(leak, ideal) <= u:
        return HOLDS, Strength.BOUNDED, max(leak, ideal)
    least = leak_at_least(alpha, (2,) * converted.leak_axes)
    if least > u:
        sentence = f"alpha = {alpha:g} leaks at least {least:.3g} of a head's mass; the roundoff of {kind} is {u:.3g}"
        return refuted("C2A403", sentence), Strength.BOUNDED, max(leak, ideal)
    return (
        Finding(Verdict.UNDECIDED, "C2A403", f"the leak of alpha = {alpha:g} is within {leak:.3g}"),
        Strength.BOUNDED,
        leak,
    )


def rounding_bound(original: Reading, converted: Reading, input_range: float) -> list[float] | None:
    """For each output channel a bound on |converted - original| as computed, for all finite |x| <= input_range.

    Both sides' rounding and the leak are counted, for every engine. Assumes equal geometry and weights, direct
    summation and no overflow. None where alpha is too small for the target's weight to round to 1.

    Source: bounds.difference_bound; Cordonnier et al. 2020, Theorem 1, with finite alpha.
    """
    taps = original.taps
    if taps is None:
        return None
    kind = FORMATS[taps.dtype]
    terms = dot_product_terms(taps.shape[2], (len(taps),))
    one_side = convolution_bound(terms, kind, bias=original.bias is not None)
    mixing = RoundingBound(0.0, 0.0)
    if converted.alphas:
        alpha, axes = min(converted.alphas), converted.leak_axes
        if not alpha >= target_rounds_to_one_threshold(kind, axes):
            return None
        mixing = worse(hard_mixing_bound(alpha, axes, kind), hard_mixing_bound(alpha, 1, kind), axes)
    sums = taps.double().abs().sum((0, 2)) * (1 + taps.numel() * 2.0**-52)
    biases = torch.zeros(len(sums)) if original.bias is None else original.bias.double().abs()
    return [
        difference_bound(s, b, input_range, one_side, one_side, mixing=mixing)
        for s, b in zip(sums.tolist(), biases.tolist(), strict=True)
    ]


def worse(whole: RoundingBound, one_axis: RoundingBound, axes: int) -> RoundingBound:
    """Holds for mixing over all keys at once and for axis after axis, where `(1 + f)^n - 1 <= 2 n f` for `n f <= 1`."""
    return RoundingBound(
        max(whole.factor, 2 * axes * one_axis.factor), max(whole.absolute, 2 * axes * one_axis.absolute)
    )
