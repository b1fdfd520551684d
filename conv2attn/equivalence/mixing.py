"""Rounding errors of the heads of one layer: of their weighted means, and of the products of their factors."""

import math

import torch

from conv2attn.basis import Basis, Weights
from conv2attn.bounds import (
    RoundingBound,
    format_of,
    gamma,
    hard_mixing_bound,
    soft_mixing_bound,
    target_rounds_to_one_threshold,
)
from conv2attn.equivalence.bases import working_heads
from conv2attn.equivalence.heads import heads_of
from conv2attn.errors import UsageError


def mixing_bound(basis: Basis, padded_sides: tuple[int, ...], kind: str) -> tuple[float, RoundingBound]:
    """The leak in real arithmetic, and the rounding error of the heads' weighted means beside it.

    Both hold for mixing over all keys at once and for axis after axis: `(1 + f)^n - 1 <= 2 n f` for `n f <= 1`. Where
    the target's weight is 1 as computed, the leak is counted in the second alone.

    Raises:
        UsageError: there are so many keys that nothing can be said.
    """
    every = heads_of(basis)
    heads = {every[head] for head in working_heads(basis)} if every else set()
    if not heads:
        return 0.0, RoundingBound(0.0, 0.0)
    axes = every[0].axes
    alpha, each = min(head.sharpness(kind) for head in heads), 2 * axes
    if alpha >= target_rounds_to_one_threshold(kind, axes):
        whole, one_axis = hard_mixing_bound(alpha, axes, kind), hard_mixing_bound(alpha, 1, kind)
        return 0.0, RoundingBound(
            max(whole.factor, each * one_axis.factor), max(whole.absolute, each * one_axis.absolute)
        )
    reaches = [(2 * (side + math.sqrt(max(head.distance for head in every)))) ** 2 for side in padded_sides]
    farthest = sum(reaches) if axes == len(padded_sides) else math.prod(reaches)
    u = format_of("float64" if kind == "float64" else "float32").unit_roundoff
    score_error = 4 * u * max(head.alpha for head in every) * farthest
    soft = soft_mixing_bound(math.prod(padded_sides), kind, score_error)
    if not axes * soft.factor <= 1:
        raise UsageError("C2A001", f"the rounding of {math.prod(padded_sides)} soft weights is not bounded")
    return max(head.leak() for head in heads), RoundingBound(each * soft.factor, each * soft.absolute)


def lost(basis: Basis, kind: str) -> float:
    """The loss of an entry of `W_val W_out` by underflow; 0 where it is formed exactly."""
    if not product_error(basis, kind):
        return 0.0
    assert basis.weights.output is not None
    return (basis.weights.output.shape[2] + 2) * format_of(kind).smallest_subnormal


def product_error(basis: Basis, kind: str) -> float:
    """Relative error of forming `W_val W_out`, of the sum of the absolute products; 0 where no sum is formed."""
    weights = basis.weights
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
