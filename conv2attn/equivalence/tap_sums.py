"""The sum of the taps at each start of a layer, compared exactly with that of another layer."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from conv2attn.basis import Basis, Offset, Shift, Weights
from conv2attn.equivalence.bases import channels, taps_of
from conv2attn.equivalence.exact_sums import Sums, block_diagonal, differing

Keys = Sequence[Any]  # one hashable key per term: terms of equal keys are added up


def starts_in_use(basis: Basis) -> set[Offset]:
    """The starts of terms that are not zero."""
    taps = taps_of(basis)
    factor = basis.weights.output if taps is None else taps
    assert factor is not None
    return {start for start, used in zip(basis.starts, factor.flatten(1).any(1).tolist(), strict=True) if used}


def different_sums(original: Basis, converted: Basis, places: Keys, keys: tuple[Keys, Keys] | None = None) -> Tensor:
    """Where the taps at a place add up to different real numbers: bool (places, d_out, d_in / groups); exact.

    Where no sum and no product is formed, floats are compared with floats; otherwise integers modulo primes.

    Args:
        places: the keys to compare at.
        keys: the key of each term of both layers, by default its start.
    """
    ours, theirs = keys or (original.starts, converted.starts)
    first, second = taps_of(original), taps_of(converted)
    same_groups = original.weights.groups == converted.weights.groups
    if first is not None and second is not None and same_groups and is_injective(ours) and is_injective(theirs):
        return ~(at_places(first, ours, places) == at_places(second, theirs, places))
    sides = []
    for side, each in ((original, ours), (converted, theirs)):
        weights = side.weights if same_groups else block_diagonal(side.weights)
        index = {place: number for number, place in enumerate(places)}
        sides.append(Sums(weights, tuple(index[key] for key in each), len(places)))
    return differing(sides[0], sides[1])


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
    numbers = torch.cat([value.double().reshape(len(value), -1) for value in basis.operators.values], 1)
    return tuple(zip(basis.starts, map(tuple, numbers.tolist()), strict=True))


def is_injective(keys: Keys) -> bool:
    """Whether no two terms have the same key."""
    return len(set(keys)) == len(keys)


def is_plain(basis: Basis) -> bool:
    """Whether each start has one term and each tap is stored, so that sums of taps are not rounded."""
    return taps_of(basis) is not None and is_injective(basis.starts)


def summed(basis: Basis, places: Sequence[Offset]) -> Tensor:
    """The sum of taps at each start in float64, (places, d_out, d_in); rounded where a sum is formed."""
    weights = block_diagonal(basis.weights)
    value, output = (None if w is None else w.cpu().double() for w in (weights.value, weights.output))
    taps = Weights(value, output, None, 1).taps()
    number = {place: at for at, place in enumerate(places)}
    index = torch.tensor([number[start] for start in basis.starts])
    return torch.zeros(len(places), *taps.shape[1:], dtype=torch.float64).index_add_(0, index, taps)


def at_places(taps: Tensor, keys: Keys, places: Keys) -> Tensor:
    """The taps in the order of `places`, zeros where no term has that key."""
    taps = taps.cpu()
    zero = torch.zeros_like(taps[0])
    index = {key: term for term, key in enumerate(keys)}
    return torch.stack([taps[index[place]] if place in index else zero for place in places])


def entry(basis: Basis, place: Offset, out: int, inp: int) -> Fraction:
    """One number of the sum of taps at a start, exactly; `inp` counts the input channels of all groups."""
    weights, total = block_diagonal(basis.weights), Fraction(0)
    for term in [t for t, s in enumerate(basis.starts) if s == place]:
        rows = None if weights.output is None else [Fraction(x) for x in weights.output[term, out].tolist()]
        columns = None if weights.value is None else [Fraction(x) for x in weights.value[term, :, inp].tolist()]
        if rows is not None and columns is not None:
            total += sum((a * b for a, b in zip(rows, columns, strict=True)), Fraction(0))
        else:
            total += rows[inp] if rows is not None else columns[out] if columns is not None else 0
    return total


def nearest_float(number: Fraction) -> float:
    """The number as a float, infinite beyond the largest."""
    try:
        return float(number)
    except OverflowError:
        return torch.inf if number > 0 else -torch.inf
