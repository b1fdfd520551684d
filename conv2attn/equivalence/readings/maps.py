"""Whether two readings are the same map for every input of every size: geometry and weights, decided exactly."""

from fractions import Fraction

import torch
from torch import Tensor

from conv2attn.basis import Offset
from conv2attn.equivalence.readings.exact import finite
from conv2attn.equivalence.readings.finding import Finding, holds, refuted, undecided, unsupported
from conv2attn.equivalence.readings.places import different_sums, entry, nearest_float, places_used, summed
from conv2attn.equivalence.readings.reading import Reading
from conv2attn.equivalence.readings.strays import judge_strays
from conv2attn.report import counted


def compare_maps(original: Reading, converted: Reading) -> list[Finding]:
    """The findings on geometry and weights: one of each, or one that says why neither is asked."""
    if not finite([original.weights.value, original.weights.output, original.weights.bias]):
        return [unsupported("C2A408", "a weight of the original is not finite: there is no map to compare with")]
    if not finite([converted.weights.value, converted.weights.output, converted.weights.bias]):
        return [refuted("weights", "C2A402", "a weight is not finite, and the original's all are")]
    form = compare_forms(original, converted)
    if form is not None:
        return [form]
    if original.dtype != converted.dtype:
        return [refuted("weights", "C2A402", f"weights are {converted.dtype}, not {original.dtype}")]
    places = tuple(dict.fromkeys((*original.starts, *converted.starts)))
    wrong = different_sums(original, converted, places)
    geometry = compare_places(original, converted, places, wrong)
    return [geometry, compare_weights(original, converted, places, wrong)]


def compare_forms(original: Reading, converted: Reading) -> Finding | None:
    """What differs before any head is looked at, or None."""
    ours, theirs = original.geometry, converted.geometry
    if original.channels != converted.channels:
        return refuted("geometry", "C2A401", f"channels are {converted.channels}, not {original.channels}")
    if len(ours.stride) != len(theirs.stride):
        return refuted("geometry", "C2A401", f"there are {len(theirs.stride)} axes, not {len(ours.stride)}")
    ratios = [[Fraction(p, s) for p, s in zip(side.spacing, side.stride, strict=True)] for side in (ours, theirs)]
    if ours.spacing != theirs.spacing and ratios[0] == ratios[1]:
        return undecided("geometry", "C2A401", "zeros are stuffed at another spacing, and left out by the stride")
    fields = [key for key in vars(ours) if getattr(ours, key) != getattr(theirs, key)]
    if fields:
        parts = [f"{key} is {getattr(theirs, key)}, not {getattr(ours, key)}" for key in fields]
        return refuted("geometry", "C2A401", "; ".join(parts))
    return None


def compare_places(original: Reading, converted: Reading, places: tuple[Offset, ...], wrong: Tensor) -> Finding:
    """Whether both copy the same pixels, beyond the border too; heads whose weights add up to zero copy nothing."""
    amiss = {place for place, bad in zip(places, wrong.flatten(1).any(1).tolist(), strict=True) if bad}
    extra = [(h, s) for h, s in enumerate(converted.starts) if s in amiss and s not in original.starts]
    missing = [
        offset
        for offset, s in zip(original.offsets, original.starts, strict=True)
        if s in amiss and s not in converted.starts
    ]
    if extra:
        head = extra[0][0]
        needs = f"the convolution needs {missing[0]}" if missing else "the convolution has no tap there"
        many = counted(len(extra), "head")
        return refuted("geometry", "C2A401", f"head {head} attends to {converted.offsets[head]}; {needs} ({many} off)")
    if missing:
        many = counted(len(missing), "tap")
        return refuted("geometry", "C2A401", f"no head attends to {missing[0]} ({many} without a head)")
    out = [start for start in original.starts if original.geometry.reaches_out(start)]
    ours, theirs = original.padding, converted.padding
    if converted.strays or original.strays:
        return judge_strays(original, converted)
    if refused := refused_sides(original, converted):
        return refuted("geometry", "C2A401", refused)
    if any(s in places_used(original) for s in out) and ours.mode != theirs.mode:
        return refuted("geometry", "C2A401", f"beyond the pixels there is {theirs.mode} padding, not {ours.mode}")
    if ours.mode != "zeros" and out and (ours.before, ours.after) != (theirs.before, theirs.after):
        sizes = f"{theirs.before} and {theirs.after}, not {ours.before} and {ours.after}"
        return undecided("geometry", "C2A401", f"{ours.mode} padding is by {sizes}: other sizes of input fit it")
    return holds("geometry")


def refused_sides(original: Reading, converted: Reading) -> str:
    """The smallest input that the padding of the second refuses and the original takes, in words; empty if none."""
    for axis in range(len(original.geometry.stride)):
        ours, theirs = (smallest_side(side, axis) for side in (original, converted))
        if theirs > ours:
            return f"{converted.padding.mode} padding refuses a side of {ours} pixels, which the original takes"
    return ""


def smallest_side(reading: Reading, axis: int) -> int:
    """The fewest pixels along an axis that the padding accepts and that give an output."""
    padding, form = reading.padding, reading.geometry
    most = max(padding.before[axis], padding.after[axis])
    needed = {"reflect": most + 1, "circular": most}.get(padding.mode, 1)
    return max(1, needed, 1 + -(form.room[axis] // form.spacing[axis]) if form.room[axis] < 0 else 1)


def compare_weights(original: Reading, converted: Reading, places: tuple[Offset, ...], wrong: Tensor) -> Finding:
    """Whether at each place that both have the weights add up to the same, and biases are equal, as real numbers."""
    both = torch.tensor([place in original.starts and place in converted.starts for place in places])
    amiss = wrong & both[:, None, None]
    if amiss.any():
        place, out, inp = worst_weight(original, converted, places, amiss)
        theirs, ours = (entry(side, places[place], out, inp) for side in (converted, original))
        tap = original.offsets[original.starts.index(places[place])]
        heads = [head for head, s in enumerate(converted.starts) if s == places[place]]
        return refuted(
            "weights",
            "C2A402",
            f"{counted(int(amiss.sum()), 'weight')} off, the worst in the tap at {tap} "
            f"(head{'s' * (len(heads) > 1)} {', '.join(map(str, heads))}), output channel {out}, input channel {inp}: "
            f"{nearest_float(theirs)!r}, not {nearest_float(ours)!r}"
            f" (off by {nearest_float(theirs - ours):.3g})",
        )
    zero = torch.zeros(original.channels[1], dtype=original.dtype)
    biases = [zero if side.weights.bias is None else side.weights.bias.cpu() for side in (converted, original)]
    if biases[0].shape != biases[1].shape or biases[0].dtype != biases[1].dtype:
        return refuted("weights", "C2A402", f"the bias is {biases[0].dtype} {tuple(biases[0].shape)}")
    unequal = ~(biases[0] == biases[1])
    if unequal.any():
        first, second = (bias.double() for bias in biases)
        channel = int((first - second).abs().argmax())
        pair = f"{biases[0][channel].item()!r}, not {biases[1][channel].item()!r}"
        sentence = f"{counted(int(unequal.sum()), 'bias', 'biases')} off, the worst in output channel {channel}: {pair}"
        return refuted("weights", "C2A402", sentence)
    return holds("weights")


def worst_weight(
    original: Reading, converted: Reading, places: tuple[Offset, ...], amiss: Tensor
) -> tuple[int, int, int]:
    """The place, output and input channel where weights `amiss` differ most, to the rounding of float64 sums."""
    found = amiss.nonzero()
    if original.weights.groups == converted.weights.groups:
        width_out, width_in = (channels // original.weights.groups for channels in reversed(original.channels))
        found[:, 2] += found[:, 1] // width_out * width_in
    ours, theirs = (summed(side, places)[tuple(found.T)] for side in (original, converted))
    place, out, inp = found[(ours - theirs).abs().nan_to_num(torch.inf).argmax()].tolist()
    return place, out, inp
