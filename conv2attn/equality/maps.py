"""Whether two layers are the same map for every input of every size: geometry, weights and leak, decided exactly."""

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from fractions import Fraction

import msgspec
import torch
from torch import Tensor

from conv2attn.equality.bases import (
    channels,
    format_of_weights,
    gradual_underflow,
    heads_of,
    heads_out_of_bounds,
    not_one_hot,
    stored_taps,
    working_heads,
)
from conv2attn.equality.outputs import widest_gap
from conv2attn.equality.results import Finding, holds, refuted, undecided, unsupported
from conv2attn.layers.attention import ENGINES
from conv2attn.layers.attention.measured_arithmetic import arithmetics
from conv2attn.layers.attention.probes import exponential_underflows
from conv2attn.networks.conversion.outcomes import SURE_ALPHA
from conv2attn.report import counted
from conv2attn.theory.basis import MODES, Basis, Offset, Padding, Shift, Sites, Weights, offsets
from conv2attn.theory.bounds import Claimed, Head, claims_of, format_of, leak_reached, one_hot_threshold
from conv2attn.theory.bounds.dyadic import integer_matrix
from conv2attn.verdicts import Strength


def compare_maps(original: Basis, converted: Basis) -> list[Finding]:
    """The findings on geometry and weights: one of each, or one that says why neither is asked."""
    if not are_finite(original.weights):
        return [unsupported("C2A408", "a weight of the first network is not finite: there is no map to compare with")]
    if not are_finite(converted.weights):
        return [
            refuted(
                "weights", "C2A402", "a weight of the second network is not finite, and all of the first network are"
            )
        ]
    form = compare_forms(original, converted)
    if form is not None:
        return [form]
    soft = not_one_hot(converted.operators, converted) or not_one_hot(original.operators, original)
    if soft and not attend_alike(original, converted):
        return [unsupported("C2A101", f"{soft}; and the heads of the two layers do not all attend alike")]
    dtypes = original.weights.stored.dtype, converted.weights.stored.dtype
    if dtypes[0] != dtypes[1]:
        return [refuted("weights", "C2A402", f"weights are {dtypes[1]}, not {dtypes[0]}")]
    places = tuple(dict.fromkeys((*original.starts, *converted.starts)))
    wrong = different_sums(original, converted, places)
    geometry = compare_places(original, converted, places, wrong)
    return [geometry, compare_weights(original, converted, places, wrong)]


def are_finite(weights: Weights) -> bool:
    """Whether all numbers are."""
    tensors = (w for w in (weights.value, weights.output, weights.bias) if w is not None)
    return all(bool(w.sum().isfinite()) or bool(w.isfinite().all()) for w in tensors)  # a sum may overflow


def compare_forms(original: Basis, converted: Basis) -> Finding | None:
    """The finding where channels or affine forms differ, or None."""
    ours, theirs = original.form, converted.form
    if channels(original) != channels(converted):
        return refuted("geometry", "C2A401", f"channels are {channels(converted)}, not {channels(original)}")
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


def compare_places(original: Basis, converted: Basis, places: tuple[Offset, ...], wrong: Tensor) -> Finding:
    """Whether both copy the same pixels, beyond the border too; heads whose taps add up to zero copy nothing.

    Args:
        places: all starts of both layers.
        wrong: where the sums of their taps differ, (places, d_out, d_in / groups).
    """
    taps, heads = offsets(original.operators), offsets(converted.operators)
    ours, theirs = original.starts, converted.starts
    amiss = {place for place, bad in zip(places, wrong.flatten(1).any(1).tolist(), strict=True) if bad}
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
    used = starts_in_use(original)
    if any(start in used for start in out) and first.mode != second.mode:
        return refuted("geometry", "C2A401", f"beyond the pixels there is {second.mode} padding, not {first.mode}")
    if MODES[first.mode].short is not None and out and (first.before, first.after) != (second.before, second.after):
        sizes = f"{second.before} and {second.after}, not {first.before} and {first.after}"
        return undecided("geometry", "C2A401", f"{first.mode} padding is by {sizes}: other sizes of input fit it")
    return holds("geometry")


def refused_sides(original: Basis, converted: Basis) -> str:
    """The smallest input that the padding of the second refuses and the original takes, in words; empty if none."""
    for axis in range(len(original.form.stride)):
        ours, theirs = (smallest_side(side, axis) for side in (original, converted))
        if theirs > ours:
            return f"{converted.padding.mode} padding refuses a side of {ours} pixels, which the first network takes"
    return ""


def smallest_side(basis: Basis, axis: int) -> int:
    """The fewest pixels along an axis that the padding accepts and that give an output."""
    padding, form = basis.padding, basis.form
    most = max(padding.before[axis], padding.after[axis])
    room = -(form.room[axis] // form.spacing[axis]) if form.room[axis] < 0 else 0
    return max(MODES[padding.mode].least_side(most), 1 + room)


def compare_weights(original: Basis, converted: Basis, places: tuple[Offset, ...], wrong: Tensor) -> Finding:
    """Whether the taps at each common start add up to the same real numbers, and the biases are equal."""
    taps, heads = original.starts, converted.starts
    both = torch.tensor([place in taps and place in heads for place in places])
    amiss = wrong & both[:, None, None]
    if amiss.any():
        place, out, inp = worst_weight(original, converted, places, amiss)
        theirs, ours = (entry(side, places[place], out, inp) for side in (converted, original))
        tap = offsets(original.operators)[taps.index(places[place])]
        there = [head for head, start in enumerate(heads) if start == places[place]]
        return refuted(
            "weights",
            "C2A402",
            f"{counted(int(amiss.sum()), 'weight')} off, the worst in the tap at {tap} "
            f"(head{'s' * (len(there) > 1)} {', '.join(map(str, there))}), output channel {out}, input channel {inp}: "
            f"{nearest_float(theirs)!r}, not {nearest_float(ours)!r}"
            f" (off by {nearest_float(theirs - ours):.3g})",
        )
    zero = torch.zeros(original.weights.d_out, dtype=original.weights.stored.dtype)
    biases = [zero if side.weights.bias is None else side.weights.bias.cpu() for side in (converted, original)]
    if biases[0].shape != biases[1].shape or biases[0].dtype != biases[1].dtype:
        return refuted("weights", "C2A402", f"the bias is {biases[0].dtype} {tuple(biases[0].shape)}")
    gap = widest_gap(biases[1], biases[0], 0.0)
    if gap is not None and gap.count:
        many = counted(gap.count, "bias", "biases")
        pair = f"{gap.converted!r}, not {gap.original!r}"
        return refuted("weights", "C2A402", f"{many} off, the worst in output channel {gap.place[0]}: {pair}")
    return holds("weights")


def worst_weight(original: Basis, converted: Basis, places: tuple[Offset, ...], amiss: Tensor) -> tuple[int, int, int]:
    """The index of the place, the output and the input channel where the weights differ most, up to rounding."""
    indices = amiss.nonzero()
    if original.weights.groups == converted.weights.groups:
        width_out, width_in = (width // original.weights.groups for width in reversed(channels(original)))
        indices[:, 2] += indices[:, 1] // width_out * width_in
    ours, theirs = (summed(side, places)[tuple(indices.T)] for side in (original, converted))
    place, out, inp = indices[(ours - theirs).abs().nan_to_num(torch.inf).argmax()].tolist()
    return place, out, inp


def on_a_larger_grid(basis: Basis) -> Basis | None:
    """An equal map of hard heads, padded so that every target is on the grid; None where no padding mode does that.

    The nearest key copies the border of the image without padding and on replicate padding: more replicate padding. It
    is zero where zeros stand there already: more zeros. Source: E8 of docs/errata.md.
    """
    if not heads_out_of_bounds(basis):
        return basis
    if not (basis.operators.reads_nearest or len(basis.form.stride) == 1):
        return None
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
    """Both, axis by axis."""
    return tuple(a + b for a, b in zip(amounts, more, strict=True))


Keys = Sequence[Hashable]  # one hashable key per term: terms of equal keys are added up


def starts_in_use(basis: Basis) -> set[Offset]:
    """The starts of terms that are not zero."""
    taps = stored_taps(basis)
    factor = basis.weights.output if taps is None else taps
    assert factor is not None
    return {start for start, used in zip(basis.starts, (factor.abs().sum((1, 2)) > 0).tolist(), strict=True) if used}


def different_sums(original: Basis, converted: Basis, places: Keys, keys: tuple[Keys, Keys] | None = None) -> Tensor:
    """The entries whose taps add up to different real numbers, decided exactly: bool (places, d_out, d_in / groups).

    Where no sum and no product is formed, floats are compared with floats; otherwise their integers with integers.

    Args:
        places: the keys to compare at.
        keys: the key of each term of both layers, by default its start.
    """
    keys = keys or (original.starts, converted.starts)
    weights = original.weights, converted.weights
    if original.weights.groups != converted.weights.groups:
        weights = block_diagonal(original.weights), block_diagonal(converted.weights)
    stored = [w.taps().cpu() if w.value is None or w.output is None else None for w in weights]
    if stored[0] is not None and stored[1] is not None and tuple(keys[0]) == tuple(keys[1]) == tuple(places):
        return ~(stored[0] == stored[1])
    wrong = list[Tensor]()
    for place in places:
        terms = [[term for term, key in enumerate(each) if key == place] for each in keys]
        single = [None if taps is None else only(taps, at) for taps, at in zip(stored, terms, strict=True)]
        if single[0] is not None and single[1] is not None:
            wrong.append(~(single[0] == single[1]))
            continue
        outputs, values = zip(*(in_a_row(*each) for each in zip(weights, terms, strict=True)), strict=True)
        left, right = torch.cat([outputs[0], -outputs[1]], 2), torch.cat(values, 1)
        wrong.append(torch.cat([differing(*pair) for pair in zip(left, right, strict=True)]))
    return torch.stack(wrong)


def only(taps: Tensor, terms: list[int]) -> Tensor | None:
    """The tap of the only term, zeros if there is none, and None if there are several."""
    return None if len(terms) > 1 else taps[terms[0]] if terms else torch.zeros_like(taps[0])


def in_a_row(weights: Weights, terms: list[int]) -> tuple[Tensor, Tensor]:
    """Two matrices a group, of which the product is the sum of these terms."""
    output, value = (factor[terms].unflatten(1, (weights.groups, -1)) for factor in both_factors(weights))
    return output.permute(1, 2, 0, 3).flatten(2), value.transpose(0, 1).flatten(1, 2)


def both_factors(weights: Weights) -> tuple[Tensor, Tensor]:
    """`output` and `value` in float64, the identity where one is left out."""
    output, value = (None if w is None else w.detach().cpu().double() for w in (weights.output, weights.value))
    if output is not None and value is not None:
        return output, value
    width = weights.d_head // weights.groups
    identity = torch.eye(width, dtype=torch.float64).repeat(weights.groups, 1).expand(len(weights.stored), -1, -1)
    return identity if output is None else output, identity if value is None else value


def differing(left: Tensor, right: Tensor) -> Tensor:
    """Which entries of a product of two matrices of floats are not 0, decided in integers."""
    (first, _), (second, _) = (integer_matrix(side.numpy()) for side in (left, right))
    return torch.tensor([bool(entry) for entry in (first * second).entries()]).reshape(len(left), right.shape[1])


def attend_alike(original: Basis, converted: Basis) -> bool:
    """Whether both are attention, and heads with equal scores have equal sums of taps: one map, hard or soft."""
    if type(original.operators) is not type(converted.operators):
        return False
    if (original.form, original.padding) != (converted.form, converted.padding):
        return False
    if channels(original) != channels(converted) or original.weights.stored.dtype != converted.weights.stored.dtype:
        return False
    ours, theirs = scores_of(original), scores_of(converted)
    return (
        bool(ours or theirs)
        and not different_sums(original, converted, tuple(dict.fromkeys((*ours, *theirs))), (ours, theirs)).any()
    )


def scores_of(basis: Basis) -> Keys:
    """For each softmax head its start and the numbers that decide its scores, as alpha; none for shifts."""
    if isinstance(basis.operators, Shift):
        return ()
    numbers = torch.cat([value.cpu().double().reshape(len(value), -1) for value in basis.operators.values], 1)
    return tuple(zip(basis.starts, map(tuple, numbers.tolist()), strict=True))


def is_plain(basis: Basis) -> bool:
    """Whether each start has one term and each tap is stored, so that sums of taps are not rounded."""
    return stored_taps(basis) is not None and len(set(basis.starts)) == len(basis.starts)


def summed(basis: Basis, places: Sequence[Offset]) -> Tensor:
    """The sum of taps at each start in float64, (places, d_out, d_in); rounded where a sum is formed."""
    taps = torch.bmm(*both_factors(block_diagonal(basis.weights)))
    number = {place: at for at, place in enumerate(places)}
    index = torch.tensor([number[start] for start in basis.starts])
    return torch.zeros(len(places), *taps.shape[1:], dtype=torch.float64).index_add_(0, index, taps)


def entry(basis: Basis, place: Offset, out: int, inp: int) -> Fraction:
    """One number of the sum of taps at a start, exactly; `inp` counts the input channels of all groups."""
    terms = (term for term, start in enumerate(basis.starts) if start == place)
    return sum((exact_row(basis.weights, term, out)[inp] for term in terms), Fraction(0))


def exact_row(weights: Weights, term: int, out: int) -> list[Fraction]:
    """The row of `W_val W_out` of one term for an output channel, exactly, over the input channels of all groups."""
    value, output = weights.value, weights.output
    group, fan_in = out // (weights.d_out // weights.groups), weights.d_in // weights.groups
    if value is None or output is None:
        numbers = [Fraction(x) for x in weights.taps()[term, out].tolist()]
    else:
        width, factors = output.shape[2], [Fraction(x) for x in output[term, out].tolist()]
        columns = value[term, group * width : (group + 1) * width].T.tolist()
        pairs = ([(a, b) for a, b in zip(factors, column, strict=True) if a and b] for column in columns)
        numbers = [sum((a * Fraction(b) for a, b in each), Fraction(0)) for each in pairs]
    row = [Fraction(0)] * weights.d_in
    row[group * fan_in : (group + 1) * fan_in] = numbers
    return row


def nearest_float(number: Fraction) -> float:
    """The number as a float, infinite beyond the largest."""
    try:
        return float(number)
    except OverflowError:
        return torch.inf if number > 0 else -torch.inf


def block_diagonal(weights: Weights) -> Weights:
    """The factors with their zero blocks, as those of one group."""

    def blocks(factor: Tensor | None) -> Tensor | None:
        if factor is None or weights.groups == 1:
            return factor
        return torch.stack([torch.block_diag(*head.unflatten(0, (weights.groups, -1))) for head in factor])

    return Weights(blocks(weights.value), blocks(weights.output), weights.bias, 1)


def check_leaks(original: Basis, converted: Basis) -> tuple[Finding, Claimed]:
    """The finding on the layer of the two that leaks more, and an upper bound on that leak.

    Two attentions with equal scores leak alike, whatever their leak is.
    """
    (ours, own), (theirs, leak) = check_leak(original), check_leak(converted)
    if leak and attend_alike(original, converted):
        return holds("leak"), leak
    if own <= leak:
        return theirs, leak
    return msgspec.structs.replace(ours, sentence=ours.sentence and f"in the first network, {ours.sentence}"), own


@gradual_underflow()
def check_leak(basis: Basis) -> tuple[Finding, Claimed]:
    """Whether every head leaks at most the unit roundoff, and an upper bound on the largest leak.

    Proved where every weight off the targets is exactly 0 as computed on this device, otherwise bounded; also for
    centres between pixels, and for targets off the grid, where the target is the nearest key.
    """
    every, kind = heads_of(basis), format_of_weights(basis)
    if not every:
        return holds("leak"), Claimed(0.0)
    working = working_heads(basis)
    bad = [head for head in working if not 0 < every[head].alpha < math.inf]
    if bad:
        sentence = f"head {bad[0]} has alpha = {every[bad[0]].alpha!r}, which is not positive and finite"
        return refuted("leak", "C2A403", f"{sentence} ({len(bad)} of {counted(len(every), 'head')})"), Claimed(1.0)
    counts = Counter(every[head] for head in working)
    like, threshold = basis.weights.stored, one_hot_threshold(kind)
    measured = (each for engine in ENGINES for each in arithmetics(engine, like.dtype, like.device.type))
    ulps = max(each.exp_ulps for each in measured)
    computed = {head: head.computed_leak(kind, ulps) for head in counts}
    if not any(computed.values()) and exponential_underflows(threshold, like.dtype, like.device.type):
        return holds("leak"), Claimed(0.0, claims_of(*computed.values()))
    leaks = {head: Claimed(max(leak, head.leak()), claims_of(leak, head.leak())) for head, leak in computed.items()}
    worst = max(leaks, key=lambda head: leaks[head])
    most, roundoff = leaks[worst], format_of(kind).unit_roundoff
    if most <= roundoff:
        sentence = f"alpha = {worst.alpha:g} leaves up to {most:.3g} of a head's mass to other keys"
        return holds("leak", Strength.BOUNDED, *(("C2A131", sentence) if worst.alpha < SURE_ALPHA else ())), most
    order = sorted(counts, key=lambda head: head != worst)
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
    """The reason why some query certainly leaks more than the roundoff on some grid; empty if that is not certain."""
    shift = max(head.shifts)
    if shift > 0.5:
        return ""
    least = leak_reached(head.alpha, head.shifts)
    if not least > roundoff:
        return ""
    where = f"is centred {shift:.3g} from the nearest pixel and " if shift else ""
    return f"{where}leaks at least {least:.3g} of its mass at alpha = {head.alpha:g}"
