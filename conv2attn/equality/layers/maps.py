"""Whether two layers are the same map for every input of every size: geometry and weights, decided exactly."""

from dataclasses import replace
from fractions import Fraction

import torch
from msgspec.structs import replace as replace_finding

from conv2attn.equality.certificate.results import Finding, holds, refuted, undecided, unsupported
from conv2attn.equality.distances import place_of_largest
from conv2attn.equality.layers.bases import Pair, channels, heads_out_of_bounds, not_one_hot
from conv2attn.equality.layers.exact_sums import starts_in_use, sum_at
from conv2attn.equality.layers.leaks import attend_alike
from conv2attn.equality.outputs import widest_gap
from conv2attn.report import counted
from conv2attn.theory.basis import MODES, Basis, Padding, Shift, Sites, Weights, offsets
from conv2attn.verdicts import Verdict


def compare_maps(pair: Pair) -> list[Finding]:
    """The findings on geometry and weights: one of each, or a single one with the reason why neither is decided."""
    original, converted = pair.original, pair.converted
    if not are_finite(original.weights):
        return [unsupported("C2A408", "a weight of the first network is not finite: there is no map to compare with")]
    if not are_finite(converted.weights):
        return [
            refuted(
                "weights", "C2A402", "a weight of the second network is not finite, and all of the first network are"
            )
        ]
    # Geometry comes first: taps are compared at their starts, which are comparable only under equal affine forms.
    form = compare_forms(original, converted)
    if form is not None:
        return [form]
    soft = not_one_hot(converted.operators, converted) or not_one_hot(original.operators, original)
    if soft and not attend_alike(original, converted):
        return [unsupported("C2A101", f"{soft}; and the heads of the two layers have different attention")]
    dtypes = original.weights.stored.dtype, converted.weights.stored.dtype
    if dtypes[0] != dtypes[1]:
        return [refuted("weights", "C2A402", f"weights are {dtypes[1]}, not {dtypes[0]}")]
    findings = compare_places(pair), compare_weights(pair)
    return [
        replace_finding(finding, licensed_by=claims) if finding.verdict is Verdict.HOLDS else finding
        for finding, claims in zip(findings, licences_of(original, converted), strict=True)
    ]


def licences_of(original: Basis, converted: Basis) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The claims on which equal geometry and equal weights rest, if their premises hold here; none for convolutions.

    L1 says that attention is a convolution, PAD that a query whose target is off the grid reads the nearest key, STR
    that a stride selects queries, T1p that the rank of a tap decides the width in which it is stored as W_val W_out.
    """
    both = original, converted
    if all(isinstance(side.operators, Shift) for side in both):
        return (), ()
    padded, strided = any(map(heads_out_of_bounds, both)), max(original.form.stride) > 1
    factored = any(side.weights.output is not None for side in both)
    return ("L1", *["PAD"] * padded, *["STR"] * strided), ("L1", *["T1p"] * factored)


def are_finite(weights: Weights) -> bool:
    """Whether all numbers are finite."""
    tensors = (w for w in (weights.value, weights.output, weights.bias) if w is not None)
    return all(bool(w.sum().isfinite()) or bool(w.isfinite().all()) for w in tensors)  # a sum may overflow


def compare_forms(original: Basis, converted: Basis) -> Finding | None:
    """The finding if channels or affine forms differ, or None."""
    ours, theirs = original.form, converted.form
    if channels(original) != channels(converted):
        return refuted("geometry", "C2A401", f"channels are {channels(converted)}, not {channels(original)}")
    if len(ours.stride) != len(theirs.stride):
        return refuted("geometry", "C2A401", f"there are {len(theirs.stride)} axes, not {len(ours.stride)}")
    ratios = [[Fraction(p, s) for p, s in zip(side.spacing, side.stride, strict=True)] for side in (ours, theirs)]
    # With zeros at spacing p and stride s, layers of equal p / s may read the same pixels, which the affine forms alone
    # do not show.
    if ours.spacing != theirs.spacing and ratios[0] == ratios[1]:
        return undecided("geometry", "C2A401", "zeros are stuffed at another spacing, and the stride skips some")
    fields = [key for key in vars(ours) if getattr(ours, key) != getattr(theirs, key)]
    if fields:
        parts = [f"{key} is {getattr(theirs, key)}, not {getattr(ours, key)}" for key in fields]
        return refuted("geometry", "C2A401", "; ".join(parts))
    return None


def compare_places(pair: Pair) -> Finding:
    """Whether both copy the same pixels, beyond the border too; heads whose taps add up to zero copy nothing."""
    original, converted = pair.original, pair.converted
    taps, heads = offsets(original.operators), offsets(converted.operators)
    ours, theirs = original.starts, converted.starts
    # A tap of zeros reads nothing, so a start that one layer lacks matters only if the sums differ.
    amiss = {place for place, bad in zip(pair.places, pair.gaps.flatten(1).any(1).tolist(), strict=True) if bad}
    extra = [head for head, start in enumerate(theirs) if start in amiss and start not in ours]
    missing = [tap for tap, start in zip(taps, ours, strict=True) if start in amiss and start not in theirs]
    if extra:
        needs = f"the convolution needs {missing[0]}" if missing else "the convolution has no tap there"
        many = counted(len(extra), "head")
        return refuted("geometry", "C2A401", f"head {extra[0]} attends to {heads[extra[0]]}; {needs} ({many} off)")
    if missing:
        many = counted(len(missing), "tap")
        return refuted("geometry", "C2A401", f"no head attends to {missing[0]} ({many} without a head)")
    wide, other = on_a_larger_grid(original), on_a_larger_grid(converted)
    if wide is None or other is None:
        if type(original.operators) is type(converted.operators) and original.padding == converted.padding:
            return holds("geometry")
        sentence = "the target of a head can lie off the padded grid, where it reads the nearest key"
        return undecided("geometry", "C2A401", sentence)
    form, first, second = original.form, wide.padding, other.padding
    out = [start for start in ours if form.reaches_out(start)]
    if refused := refused_sides(wide, other):
        return refuted("geometry", "C2A401", refused)
    if first.mode != second.mode and not starts_in_use(original).isdisjoint(out):
        return refuted("geometry", "C2A401", f"beyond the pixels there is {second.mode} padding, not {first.mode}")
    if MODES[first.mode].short is not None and out and (first.before, first.after) != (second.before, second.after):
        sizes = f"{second.before} and {second.after}, not {first.before} and {first.after}"
        return undecided("geometry", "C2A401", f"{first.mode} padding is by {sizes}: other sizes of input fit it")
    return holds("geometry")


def refused_sides(original: Basis, converted: Basis) -> str:
    """The smallest input that the second's padding refuses and the original's accepts, in words; empty if none."""
    for axis in range(len(original.form.stride)):
        ours, theirs = (smallest_side(side, axis) for side in (original, converted))
        if theirs > ours:
            return f"{converted.padding.mode} padding refuses a side of {ours} pixels, which the first network takes"
    return ""


def smallest_side(basis: Basis, axis: int) -> int:
    """The least number of pixels along an axis that the padding accepts and that gives an output."""
    padding, form = basis.padding, basis.form
    most = max(padding.before[axis], padding.after[axis])
    room = -(form.room[axis] // form.spacing[axis]) if form.room[axis] < 0 else 0
    return max(MODES[padding.mode].least_side(most), 1 + room)


def compare_weights(pair: Pair) -> Finding:
    """Whether the taps at each common start add up to the same real numbers, and the biases are equal."""
    original, converted = pair.original, pair.converted
    taps, heads = original.starts, converted.starts
    both = torch.tensor([place in taps and place in heads for place in pair.places], device="cpu")
    gaps = pair.gaps.where(both[:, None, None], 0.0)
    if gaps.any():
        at, out, inp = place_of_largest(gaps.abs())
        place, off, (d_in, d_out) = pair.places[at], gaps[at, out, inp].item(), channels(original)
        # With groups the columns count from the first channel of their group; a report counts from the very first.
        group = out // (d_out * gaps.shape[2] // d_in)
        inp += group * gaps.shape[2]
        theirs, ours = (sum_at(side, place, out, inp) for side in (converted, original))
        tap = offsets(original.operators)[taps.index(place)]
        there = [head for head, start in enumerate(heads) if start == place]
        numbers = f" (head{'s' * (len(there) > 1)} {', '.join(map(str, there))})"
        by_heads = "" if isinstance(converted.operators, Shift) else numbers
        return refuted(
            "weights",
            "C2A402",
            f"{counted(int(gaps.count_nonzero()), 'weight')} off, the worst in the tap at {tap}{by_heads}, "
            f"output channel {out}, input channel {inp}: {theirs!r}, not {ours!r} (off by {off:.3g})",
        )
    zero = torch.zeros(original.weights.d_out, dtype=original.weights.stored.dtype)
    biases = [zero if side.weights.bias is None else side.weights.bias.cpu() for side in (converted, original)]
    if biases[0].shape != biases[1].shape or biases[0].dtype != biases[1].dtype:
        return refuted("weights", "C2A402", f"the bias is {biases[0].dtype} {tuple(biases[0].shape)}")
    gap = widest_gap("bias", biases[1], biases[0])
    if gap is not None and gap.count:
        many = counted(gap.count, "bias", "biases")
        values = f"{gap.converted!r}, not {gap.original!r}"
        return refuted("weights", "C2A402", f"{many} off, the worst in output channel {gap.place[0]}: {values}")
    return holds("weights")


def on_a_larger_grid(basis: Basis) -> Basis | None:
    """An equal map of hard heads, padded so that every target is on the grid; None if no padding mode allows it.

    Without padding, or with replicate padding, the nearest key is a copy of the image's border, so replicate padding is
    extended. With zero padding the nearest key is zero, so zeros are added. Source: E8 of docs/errata.md.
    """
    if not heads_out_of_bounds(basis):
        return basis
    if not (basis.operators.reads_nearest or len(basis.form.stride) == 1):
        return None
    # Enough further padding puts every target on the grid.
    targets = list(zip(*offsets(basis.operators), strict=True))
    padding, sites = basis.padding, basis.sites
    before = tuple(max(0, -min(each) - first) for each, first in zip(targets, sites.before, strict=True))
    after = tuple(max(0, max(each) - last) for each, last in zip(targets, sites.after, strict=True))
    amounts = [
        here
        for more, there in ((before, padding.before), (after, padding.after))
        for extra, here in zip(more, there, strict=True)
        if extra
    ]
    if padding.is_identity or (padding.mode == "replicate" and min(amounts) >= 0):
        mode = "replicate"
    elif padding.mode == "zeros" and min(amounts) > 0:
        mode = "zeros"
    else:
        return None
    wider = Padding(added(padding.before, before), added(padding.after, after), mode, padding.spacing)
    return replace(
        basis, padding=wider, sites=Sites(sites.stride, added(sites.before, before), added(sites.after, after))
    )


def added(amounts: tuple[int, ...], more: tuple[int, ...]) -> tuple[int, ...]:
    """The sums of both, axis by axis."""
    return tuple(a + b for a, b in zip(amounts, more, strict=True))
