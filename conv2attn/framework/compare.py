"""Whether two linear layers are one map at given sides: exactly, or by a bound on the difference of their outputs."""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from conv2attn.basis import Basis, Sides, as_matrix, output_sides
from conv2attn.basis.basis import field
from conv2attn.bounds import gamma
from conv2attn.errors import UsageError
from conv2attn.framework.exact import Difference, as_float, exact_difference
from conv2attn.verdicts import Strength, Verdict

UNIT_ROUNDOFF, SMALLEST = 2.0**-53, 2.0**-1074


@final
@dataclass(frozen=True)
class Comparison:
    """Two layers as maps of inputs within [-1, 1], in exact arithmetic.

    Args:
        verdict: holds where the outputs differ by at most the tolerance that was asked for.
        strength: proved where the maps are equal, otherwise bounded.
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
    """Compares all outputs of two layers on inputs with these sides.

    Operators, factors of weights and biases count as the numbers that they are in float64; products of factors are
    exact. An output is furthest off at the input with the signs of its row. Rows that bounds in float64 leave open are
    summed in integers, so that the verdict is undecided only where a number is not finite.

    Raises:
        UsageError: the layers have other channels or queries (C2A120), or the tolerance is no number >= 0 (C2A001).
    Examples:
        >>> import conv2attn, torch
        >>> conv = torch.nn.Conv2d(3, 4, 3)
        >>> first, second = conv2attn.as_basis(conv), conv2attn.as_basis(conv2attn.convert(conv))
        >>> conv2attn.compare(first, second, sides=(6, 7), tolerance=1e-6).verdict
        <Verdict.HOLDS: 'holds'>
    """
    if not 0 <= tolerance < math.inf:
        raise UsageError("C2A001", f"tolerance={tolerance} is not a number >= 0", "Pass a number of at least 0.")
    layers = (first, second)
    shapes = [(b.weights.d_in, b.weights.d_out, *output_sides(b.mixing, sides)) for b in layers]
    if shapes[0] != shapes[1]:
        raise UsageError(
            "C2A120",
            f"channels and queries {shapes[0]} and {shapes[1]} are not those of one map",
            "Pass two layers with the same channels and queries.",
        )
    operators = [as_matrix(basis.mixing, sides).detach() for basis in layers]
    biases = [field(basis, sides).detach().double().expand(shapes[0][1:]).flatten(1) for basis in layers]
    factors = [w for b in layers for w in (b.weights.value, b.weights.output) if w is not None]
    if not all(bool(numbers.isfinite().all()) for numbers in (*operators, *biases, *factors)):
        return Comparison(Verdict.UNDECIDED, Strength.BOUNDED, math.inf, 0.0, sides)
    gap = exact_difference(operators, [basis.weights for basis in layers], biases)
    if gap.is_zero:
        return Comparison(Verdict.HOLDS, Strength.PROVED, 0.0, 0.0, sides)
    least, most = row_bounds(gap)
    floor, error = max(0.0, least.max().item()), most.max().item()
    if floor > tolerance:
        return Comparison(Verdict.REFUTED, Strength.BOUNDED, error, floor, sides)
    for channel, query in (most > tolerance).nonzero().tolist():
        exact = gap.row_sum(channel, query)
        if exact > tolerance:
            return Comparison(Verdict.REFUTED, Strength.BOUNDED, error, math.nextafter(as_float(exact), 0.0), sides)
        error = tolerance
    return Comparison(Verdict.HOLDS, Strength.BOUNDED if error else Strength.PROVED, error, floor, sides)


def row_bounds(gap: Difference) -> tuple[Tensor, Tensor]:
    """Bounds from below and above on the sum of absolute entries in each row of the map, (d_out, queries)."""
    operators, taps, bias = gap.operators, gap.in_float(), (gap.biases[0] - gap.biases[1]).abs()
    count = taps.shape[0] + taps.shape[2] * operators.shape[2]
    slack = gamma(count + 6, UNIT_ROUNDOFF)
    underflow = SMALLEST * count * (1 + operators.abs().sum().item())
    ends = []
    for channel, shift in zip(taps.movedim(1, 0), bias, strict=True):
        row_sum = torch.einsum("tqk,ti->qik", operators, channel).abs().sum((1, 2)) + shift
        uncertainty = (
            torch.einsum("tqk,ti->qik", operators.abs(), channel.abs()).sum((1, 2)) + shift
        ) * slack + underflow
        ends.append(torch.stack([row_sum - uncertainty, row_sum + uncertainty]))
    least, most = torch.stack(ends, 1)
    infinity = torch.tensor(math.inf).double()
    return torch.nextafter(least, -infinity).nan_to_num(-math.inf), torch.nextafter(most, infinity).nan_to_num(math.inf)
