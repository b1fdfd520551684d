"""Exact sums of the taps that start at one pixel.

If no sum or product is formed, floats are compared; otherwise integers.
"""

from collections.abc import Hashable, Sequence
from fractions import Fraction

import torch
from torch import Tensor

from conv2attn.equality.layers.bases import (
    stored_taps,
)
from conv2attn.theory.basis import Basis, Offset, Weights
from conv2attn.theory.bounds.dyadic import integer_matrix

Keys = Sequence[Hashable]  # one hashable key per term: terms of equal keys are added up


def starts_in_use(basis: Basis) -> set[Offset]:
    """The starts of terms that are not zero."""
    taps = stored_taps(basis)
    factor = basis.weights.output if taps is None else taps
    assert factor is not None
    return {start for start, used in zip(basis.starts, (factor.abs().sum((1, 2)) > 0).tolist(), strict=True) if used}


def different_sums(original: Basis, converted: Basis, places: Keys, keys: tuple[Keys, Keys] | None = None) -> Tensor:
    """The entries whose taps have different exact sums: bool (places, d_out, d_in / groups).

    If no sum or product is formed, floats are compared; otherwise integers.

    Args:
        places: the keys to compare at.
        keys: the key of each term of both layers, by default its start.
    """
    keys = keys or (original.starts, converted.starts)
    weights = original.weights, converted.weights
    if original.weights.groups != converted.weights.groups:
        weights = block_diagonal(original.weights), block_diagonal(converted.weights)
    stored = [w.taps().cpu() if w.value is None or w.output is None else None for w in weights]
    # The usual case: each place has one tap in both, so all floats are compared at once.
    if stored[0] is not None and stored[1] is not None and tuple(keys[0]) == tuple(keys[1]) == tuple(places):
        return ~(stored[0] == stored[1])
    wrong = list[Tensor]()
    for place in places:
        terms = [[term for term, key in enumerate(each) if key == place] for each in keys]
        single = [None if taps is None else only(taps, at) for taps, at in zip(stored, terms, strict=True)]
        if single[0] is not None and single[1] is not None:
            wrong.append(~(single[0] == single[1]))
            continue
        # A sum of products in floats would round. So both sides form one product of integer matrices, which is zero if
        # they are equal:  [outputs | -other outputs] [values ; other values].
        outputs, values = zip(*(in_a_row(*each) for each in zip(weights, terms, strict=True)), strict=True)
        left, right = torch.cat([outputs[0], -outputs[1]], 2), torch.cat(values, 1)
        wrong.append(torch.cat([differing(*pair) for pair in zip(left, right, strict=True)]))
    return torch.stack(wrong)


def only(taps: Tensor, terms: list[int]) -> Tensor | None:
    """The tap of the only term, zeros if there is none, and None if there are several."""
    return None if len(terms) > 1 else taps[terms[0]] if terms else torch.zeros_like(taps[0])


def in_a_row(weights: Weights, terms: list[int]) -> tuple[Tensor, Tensor]:
    """Two matrices per group, whose product is the sum of these terms."""
    output, value = (factor[terms].unflatten(1, (weights.groups, -1)) for factor in both_factors(weights))
    return output.permute(1, 2, 0, 3).flatten(2), value.transpose(0, 1).flatten(1, 2)


def both_factors(weights: Weights) -> tuple[Tensor, Tensor]:
    """`output` and `value` in float64, with the identity for a missing factor."""
    output, value = (None if w is None else w.detach().cpu().double() for w in (weights.output, weights.value))
    if output is not None and value is not None:
        return output, value
    width = weights.d_head // weights.groups
    identity = (
        torch.eye(width, dtype=torch.float64, device="cpu")
        .repeat(weights.groups, 1)
        .expand(len(weights.stored), -1, -1)
    )
    return identity if output is None else output, identity if value is None else value


def differing(left: Tensor, right: Tensor) -> Tensor:
    """The non-zero entries of a product of two float matrices, decided in integers."""
    (first, _), (second, _) = (integer_matrix(side.numpy()) for side in (left, right))
    return torch.tensor([bool(entry) for entry in (first * second).entries()], device="cpu").reshape(
        len(left), right.shape[1]
    )


def is_plain(basis: Basis) -> bool:
    """Whether each start has one term and each tap is stored, so that no sum of taps is rounded."""
    return stored_taps(basis) is not None and len(set(basis.starts)) == len(basis.starts)


def summed(basis: Basis, places: Sequence[Offset]) -> Tensor:
    """The sum of taps at each start in float64, (places, d_out, d_in); rounded if a sum is formed."""
    taps = torch.bmm(*both_factors(block_diagonal(basis.weights)))
    number = {place: at for at, place in enumerate(places)}
    index = torch.tensor([number[start] for start in basis.starts], device=taps.device)
    return torch.zeros(len(places), *taps.shape[1:], dtype=torch.float64, device=taps.device).index_add_(0, index, taps)


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
    """The factors of one group, with the zero blocks between groups filled in."""

    def blocks(factor: Tensor | None) -> Tensor | None:
        if factor is None or weights.groups == 1:
            return factor
        return torch.stack([torch.block_diag(*head.unflatten(0, (weights.groups, -1))) for head in factor])

    return Weights(blocks(weights.value), blocks(weights.output), weights.bias, 1)
