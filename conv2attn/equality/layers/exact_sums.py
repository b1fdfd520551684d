"""Sums of taps that start at one pixel, as the real numbers that they are."""

import math
from collections.abc import Hashable, Sequence
from fractions import Fraction

import torch
from torch import Tensor

from conv2attn.theory.basis import Basis, Offset, Weights
from conv2attn.theory.bounds.dyadic import integer_matrix

Keys = Sequence[Hashable]  # one hashable key per term: terms of equal keys are added up


def stored_taps(weights: Weights) -> Tensor | None:
    """`W_val W_out` of each term, (terms, d_out, d_in / groups), if one factor is the identity; else None."""
    return weights.taps().cpu() if weights.value is None or weights.output is None else None


def starts_in_use(basis: Basis) -> set[Offset]:
    """The starts of terms that are not zero."""
    taps = stored_taps(basis.weights)
    factor = basis.weights.output if taps is None else taps
    assert factor is not None
    return {start for start, used in zip(basis.starts, (factor.abs().sum((1, 2)) > 0).tolist(), strict=True) if used}


def differences_of_sums(
    original: Basis, converted: Basis, places: Keys, keys: tuple[Keys, Keys] | None = None
) -> Tensor:  # (places, d_out, d_in / groups)
    """converted - original: the differences of sums of taps, in float64; 0 only where both are the same real number.

    Each is the exact difference, rounded once. Where no sum and no product is formed, floats are subtracted from
    floats; otherwise their integers from integers.

    Args:
        places: the keys to compare at.
        keys: the key of each term of both layers, by default its start.
    """
    keys = keys or (original.starts, converted.starts)
    weights = original.weights, converted.weights
    if original.weights.groups != converted.weights.groups:
        weights = block_diagonal(original.weights), block_diagonal(converted.weights)
    stored = [stored_taps(each) for each in weights]
    # The usual case, the same taps in the same order, needs no second copy of all weights in float64.
    alike = tuple(keys[0]) == tuple(keys[1]) == tuple(places)
    if alike and stored[0] is not None and stored[1] is not None and torch.equal(stored[0], stored[1]):
        return torch.zeros((), dtype=torch.float64, device="cpu").expand(stored[0].shape)
    terms_at = [terms_by_key(each) for each in keys]
    gaps = list[Tensor]()
    for place in places:
        terms = [each.get(place, []) for each in terms_at]
        single = [None if taps is None else only(taps, at) for taps, at in zip(stored, terms, strict=True)]
        # One tap in both: with gradual underflow a difference of floats is 0 only where they are equal.
        if single[0] is not None and single[1] is not None:
            gaps.append(single[1].double() - single[0].double())
            continue
        # A sum of products in floats would round. So both sides go into one product of whole numbers, which is zero
        # where they are equal:  [other outputs | -outputs] [other values ; values].
        (outputs, values), (others, other_values) = (in_a_row(*each) for each in zip(weights, terms, strict=True))
        left, right = torch.cat([others, -outputs], 2), torch.cat([other_values, values], 1)
        gaps.append(torch.cat([exact_product(*pair) for pair in zip(left, right, strict=True)]))
    return torch.stack(gaps)


def terms_by_key(keys: Keys) -> dict[Hashable, list[int]]:
    """The terms of each key."""
    terms = dict[Hashable, list[int]]()
    for term, key in enumerate(keys):
        terms.setdefault(key, []).append(term)
    return terms


def sum_at(basis: Basis, place: Offset, out: int, inp: int) -> float:
    """One number of the sum of taps at a start, up to rounding; `inp` counts the input channels of all groups."""
    terms = terms_by_key(basis.starts)[place]
    return torch.block_diag(*torch.bmm(*in_a_row(basis.weights, terms)))[out, inp].item()


def only(taps: Tensor, terms: list[int]) -> Tensor | None:
    """The tap of the only term, zeros if there is none, and None if there are several."""
    return None if len(terms) > 1 else taps[terms[0]] if terms else torch.zeros_like(taps[0])


def in_a_row(weights: Weights, terms: list[int]) -> tuple[Tensor, Tensor]:
    """Two matrices per group whose product is the sum of these terms."""
    factors = (factor.detach()[terms].cpu().double() for factor in weights.explicit_factors())
    value, output = (factor.unflatten(1, (weights.groups, -1)) for factor in factors)
    return output.permute(1, 2, 0, 3).flatten(2), value.transpose(0, 1).flatten(1, 2)


def exact_product(left: Tensor, right: Tensor) -> Tensor:
    """A product of two matrices of floats, each entry rounded once from the exact one; 0 only where the exact entry is
    0."""
    (first, bits), (second, more) = (integer_matrix(side.numpy()) for side in (left, right))
    entries = (nearest_float(int(entry), bits + more) if entry else 0.0 for entry in (first * second).entries())
    return torch.tensor([*entries], dtype=torch.float64, device="cpu").reshape(len(left), right.shape[1])


def nearest_float(number: int, bits: int) -> float:
    """`number / 2^bits` as a float, infinite beyond the largest; 0 only where the number is 0."""
    try:
        return float(Fraction(number) / Fraction(2) ** bits) or math.copysign(math.ulp(0.0), number)
    except OverflowError:
        return math.copysign(math.inf, number)


def block_diagonal(weights: Weights) -> Weights:
    """The factors of one group, with the zero blocks between groups filled in."""

    def blocks(factor: Tensor | None) -> Tensor | None:
        if factor is None or weights.groups == 1:
            return factor
        return torch.stack([torch.block_diag(*head.unflatten(0, (weights.groups, -1))) for head in factor])

    return Weights(blocks(weights.value), blocks(weights.output), weights.bias, 1)
