"""What the heads or taps of a reading do with each pixel that they copy: sums of weights, compared exactly."""

from dataclasses import replace
from fractions import Fraction

import torch
from torch import Tensor

from conv2attn.basis import Offset, Weights
from conv2attn.equivalence.readings.exact import Sums, dense, differing
from conv2attn.equivalence.readings.reading import Reading


def places_used(reading: Reading) -> set[Offset]:
    """The starts of heads or taps that are not zero."""
    factor = reading.taps if reading.taps is not None else reading.weights.output
    assert factor is not None
    return {place for place, used in zip(reading.starts, factor.flatten(1).any(1).tolist(), strict=True) if used}


def different_sums(original: Reading, converted: Reading, places: tuple[Offset, ...]) -> Tensor:
    """Where the weights at a place add up to different numbers: bool (places, d_out, d_in / groups).

    One number is compared with one number where no sum and no product is to be formed, else modulo primes.
    """
    if original.weights.groups == converted.weights.groups and single(original) and single(converted):
        assert original.taps is not None
        assert converted.taps is not None
        if original.taps.shape[1:] == converted.taps.shape[1:]:
            ours, theirs = (at_places(side, places) for side in (original, converted))
            return ~(ours == theirs)
    sides = []
    for side in (original, converted):
        weights = side.weights if side.taps is None else Weights(None, side.taps, None, side.weights.groups)
        if original.weights.groups != converted.weights.groups:
            weights = dense(weights)
        sides.append(Sums(weights, tuple(places.index(s) for s in side.starts), len(places)))
    return differing(sides[0], sides[1])


def attend_alike(original: Reading, converted: Reading) -> bool:
    """Whether both are attention, and heads of the same scores do the same together: one map, soft or not."""
    if original.positions is None or converted.positions is None:
        return False
    if (original.geometry, original.padding) != (converted.geometry, converted.padding):
        return False
    if original.channels != converted.channels or original.dtype != converted.dtype:
        return False
    if original.positions.by_enumeration != converted.positions.by_enumeration:
        return False
    ours, theirs = (
        [*zip(side.starts, side.positions.scores, strict=True)] for side in (original, converted) if side.positions
    )
    kinds = {head: (kind,) for kind, head in enumerate(dict.fromkeys((*ours, *theirs)))}
    sides = [
        replace(side, starts=tuple(kinds[head] for head in heads))
        for side, heads in ((original, ours), (converted, theirs))
    ]
    return not different_sums(sides[0], sides[1], tuple(kinds.values())).any()


def single(reading: Reading) -> bool:
    """Whether each place has one head, with a plain tap, so that its weights are summed without rounding."""
    return reading.taps is not None and len(set(reading.starts)) == len(reading.starts)


def summed(reading: Reading, places: tuple[Offset, ...]) -> Tensor:
    """The weights at each place in float64, (places, d_out, d_in), up to rounding where a sum is formed."""
    plain = reading.weights if reading.taps is None else Weights(None, reading.taps, None, reading.weights.groups)
    weights = dense(plain)
    value, output = (None if w is None else w.cpu().double() for w in (weights.value, weights.output))
    taps = Weights(value, output, None, 1).taps()
    index = torch.tensor([places.index(start) for start in reading.starts])
    return torch.zeros(len(places), *taps.shape[1:], dtype=torch.float64).index_add_(0, index, taps)


def at_places(reading: Reading, places: tuple[Offset, ...]) -> Tensor:
    """The taps in the order of `places`, zero where there is none."""
    assert reading.taps is not None
    taps = reading.taps.cpu()
    zero = torch.zeros_like(taps[0])
    index = {start: term for term, start in enumerate(reading.starts)}
    return torch.stack([taps[index[place]] if place in index else zero for place in places])


def entry(reading: Reading, place: Offset, out: int, inp: int) -> Fraction:
    """One number of the sum at a place, exactly; `inp` counts all input channels, those of other groups too."""
    weights, total = dense(reading.weights), Fraction(0)
    for head in [h for h, s in enumerate(reading.starts) if s == place]:
        rows = None if weights.output is None else [Fraction(x) for x in weights.output[head, out].tolist()]
        columns = None if weights.value is None else [Fraction(x) for x in weights.value[head, :, inp].tolist()]
        if rows is not None and columns is not None:
            total += sum((a * b for a, b in zip(rows, columns, strict=True)), Fraction(0))
        else:
            total += rows[inp] if rows is not None else columns[out] if columns is not None else 0
    return total


def nearest_float(number: Fraction) -> float:
    """The number as a float, infinite beyond those."""
    try:
        return float(number)
    except OverflowError:
        return torch.inf if number > 0 else -torch.inf
