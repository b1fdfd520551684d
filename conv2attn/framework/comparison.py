"""Whether two linear layers are one map, at given sides: exactly, or how far their outputs can be apart."""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from conv2attn.basis import Basis, Sides, Weights, as_matrix, output_sides
from conv2attn.basis.basis import field
from conv2attn.bounds import gamma
from conv2attn.errors import UsageError
from conv2attn.verdicts import Strength, Verdict

UNIT_ROUNDOFF = 2.0**-53


@final
@dataclass(frozen=True)
class Comparison:
    """Two layers as maps of inputs within [-1, 1], in exact arithmetic.

    Args:
        verdict: holds where the outputs differ by at most the tolerance that was asked for.
        strength: proved where the maps are equal number by number, otherwise bounded.
        error: no output differs by more, for any such input.
        floor: some output differs by as much as this, for some such input.
        sides: of the inputs.
    """

    verdict: Verdict
    strength: Strength
    error: float
    floor: float
    sides: Sides


def compare(first: Basis, second: Basis, sides: Sides, tolerance: float = 0.0) -> Comparison:
    """Compares all outputs of two layers on inputs with these sides; the signs of its row drive an output furthest.

    Terms with equal operators and channel matrices cancel, so that heads or taps in another order are the same map.
    Operators and parameters count as the numbers that they are in float64.

    Raises:
        UsageError: the layers have other channels or queries (C2A120), or the tolerance is no number >= 0 (C2A001).
    """
    if not tolerance >= 0:
        raise UsageError("C2A001", f"tolerance={tolerance} is not a number >= 0")
    shapes = [(b.weights.d_in, b.weights.d_out, *output_sides(b.mixing, sides)) for b in (first, second)]
    if shapes[0] != shapes[1]:
        raise UsageError("C2A120", f"channels and queries {shapes[0]} and {shapes[1]} are not those of one map")
    operators, taps, sizes = (each.double() for each in left_over(first, second, sides))
    bias = (field(first, sides).detach().double() - field(second, sides).detach().double()).flatten(1).abs()
    roundings = sum(products(basis) for basis in (first, second))
    if not roundings and not len(taps) and not bias.any():
        return Comparison(Verdict.HOLDS, Strength.PROVED, 0.0, 0.0, sides)
    slack = gamma(len(taps) + roundings + shapes[0][0] * math.prod(sides) + 4, UNIT_ROUNDOFF)
    ends = []
    for o in range(shapes[0][1]):
        row = torch.einsum("tqk,ti->qik", operators, taps[:, o]).abs().sum((1, 2)) + bias[o]
        doubt = (torch.einsum("tqk,ti->qik", operators.abs(), sizes[:, o]).sum((1, 2)) + bias[o]) * slack
        ends.append(torch.stack([(row - doubt).max(), (row + doubt).max()]))
    least, most = torch.stack(ends).amax(0).tolist()
    floor, error = max(0.0, math.nextafter(least, -math.inf)), math.nextafter(most, math.inf)
    verdict = Verdict.HOLDS if error <= tolerance else Verdict.REFUTED if floor > tolerance else Verdict.UNDECIDED
    return Comparison(verdict, Strength.BOUNDED, error, floor, sides)


def left_over(first: Basis, second: Basis, sides: Sides) -> tuple[Tensor, Tensor, Tensor]:
    """The terms of the first layer, and those of the second negated, without those that cancel.

    Returns:
        Operators, (terms, queries, keys), channel matrices, and bounds on the absolute sums of which these are made,
        both (terms, d_out, d_in).
    """
    kept = terms_of(first, sides)
    for matrix, tap, size in terms_of(second, sides):
        same = (at for at, each in enumerate(kept) if torch.equal(each[0], matrix) and torch.equal(each[1], tap))
        if (place := next(same, None)) is None:
            kept.append((matrix, -tap, size))
        else:
            kept.pop(place)
    if not kept:
        empty = torch.zeros(0, first.weights.d_out, first.weights.d_in)
        return torch.zeros(0, math.prod(output_sides(first.mixing, sides)), math.prod(sides)), empty, empty
    matrices, taps, sizes = zip(*kept, strict=True)
    return torch.stack(matrices), torch.stack(taps), torch.stack(sizes)


def terms_of(basis: Basis, sides: Sides) -> list[tuple[Tensor, Tensor, Tensor]]:
    """The terms that are not zero: operator, channel matrix, and the sums of absolute values in this matrix."""
    weights = basis.weights.to(torch.float64)
    value, output = (None if factor is None else factor.abs() for factor in (weights.value, weights.output))
    parts = as_matrix(basis.mixing, sides), weights.dense(), Weights(value, output, None, weights.groups).dense().abs()
    each = zip(*(part.detach() for part in parts), strict=True)
    return [(matrix, tap, size) for matrix, tap, size in each if matrix.any() and size.any()]


def products(basis: Basis) -> int:
    """The number of roundings in an entry of a channel matrix: none where a factor is the identity."""
    value, output = basis.weights.value, basis.weights.output
    return 0 if value is None or output is None else output.shape[2] + 1
