"""What the heads of one layer are off by, as computed: their weighted means, and the products of their factors."""

import math

import torch

from conv2attn.basis import Weights
from conv2attn.bounds import (
    RoundingBound,
    format_of,
    gamma,
    hard_mixing_bound,
    soft_mixing_bound,
    target_rounds_to_one_threshold,
)
from conv2attn.equivalence.readings.reading import Reading
from conv2attn.errors import UsageError


def mixing_bound(reading: Reading, padded_sides: tuple[int, ...], kind: str) -> tuple[float, RoundingBound]:
    """The leak in real arithmetic and what the heads' weighted means are off by beside it.

    Both hold for mixing over all keys at once and for axis after axis: `(1 + f)^n - 1 <= 2 n f` for `n f <= 1`. Where
    the target's weight is 1 as computed, the leak is counted in the second alone.

    Raises:
        UsageError: there are so many keys that nothing can be said.
    """
    positions = reading.positions
    heads = positions.distinct(reading.working) if positions else []
    if positions is None or not heads:
        return 0.0, RoundingBound(0.0, 0.0)
    axes = positions.axes
    alpha, each = min(positions.sharpness(head, kind) for head in heads), 2 * axes
    if alpha >= target_rounds_to_one_threshold(kind, axes):
        whole, one_axis = hard_mixing_bound(alpha, axes, kind), hard_mixing_bound(alpha, 1, kind)
        return 0.0, RoundingBound(
            max(whole.factor, each * one_axis.factor), max(whole.absolute, each * one_axis.absolute)
        )
    reaches = [(2 * (side + math.sqrt(max(positions.distances)))) ** 2 for side in padded_sides]
    farthest = sum(reaches) if axes == len(padded_sides) else math.prod(reaches)
    u = format_of("float64" if kind == "float64" else "float32").unit_roundoff
    score_error = 4 * u * max(positions.alphas) * farthest
    soft = soft_mixing_bound(math.prod(padded_sides), kind, score_error)
    if not axes * soft.factor <= 1:
        raise UsageError("C2A001", f"the rounding of {math.prod(padded_sides)} soft weights is not bounded")
    return max(map(positions.leak, heads)), RoundingBound(each * soft.factor, each * soft.absolute)


def lost(reading: Reading, kind: str) -> float:
    """What an entry of `W_val W_out` loses by underflow; 0 where it is formed exactly."""
    if not product_error(reading, kind):
        return 0.0
    assert reading.weights.output is not None
    return (reading.weights.output.shape[2] + 2) * format_of(kind).smallest_subnormal


def product_error(reading: Reading, kind: str) -> float:
    """Relative error of forming `W_val W_out`, of the sum of the absolute products; 0 where no sum is formed."""
    weights = reading.weights
    if weights.value is None or weights.output is None or (formed_exactly(weights) and not format_of(kind).cuts):
        return 0.0
    form = format_of(kind)
    return 2 * gamma(weights.output.shape[2] + 2, form.unit_roundoff)


def formed_exactly(weights: Weights) -> bool:
    """Whether each entry of `W_val W_out` is one product at most, and the dtype holds it: permutations, scales."""
    value, output, groups = weights.value, weights.output, weights.groups
    assert value is not None
    assert output is not None
    alone = (output != 0).sum(2).max() <= 1 or (value.unflatten(1, (groups, -1)) != 0).sum(2).max() <= 1
    if not alone or value.dtype == torch.float64:
        return False
    wide = Weights(value.double(), output.double(), None, groups)
    return torch.equal(weights.taps().double(), wide.taps())
