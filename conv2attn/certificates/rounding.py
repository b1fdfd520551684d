"""The bound on the difference of two layers as computed, for all finite inputs up to a range."""

import torch
from torch import Tensor

from conv2attn.attention import Weights
from conv2attn.bounds import (
    RoundingBound,
    convolution_bound,
    difference_bound,
    format_of,
    gamma,
    hard_mixing_bound,
    target_rounds_to_one_threshold,
)
from conv2attn.certificates.reading import Reading
from conv2attn.errors import UsageError

SLACK = 1 + 2.0**-30  # pays for the float64 sums here: fewer than 2^22 terms, each rounded once
CASTS = 2  # the product and the bias may be stored apart in a half type


def rounding_bound(original: Reading, converted: Reading, input_range: float) -> list[float] | None:
    """For each output channel a bound on |converted - original| as computed, for all finite |x| <= input_range.

    Both sides' rounding and the leak are counted, for every engine. Assumes that both are the same map but for the
    leak, direct summation and no overflow. None where alpha is too small for the target's weight to round to 1, or
    the sums are so long that nothing can be said.

    Source: bounds.difference_bound; Cordonnier et al. 2020, Theorem 1, with finite alpha.
    """
    kind = original.format
    mixing = mixing_bound(converted)
    if mixing is None:
        return None
    try:
        terms = [max(1, len(side.starts) * fan_in(side)) for side in (original, converted)]
        bounds = [convolution_bound(n, kind, bias=has_bias(original), casts=CASTS) for n in terms]
        products = [product_error(side) for side in (original, converted)]
    except UsageError:
        return None
    sums = [absolute_sums(side) for side in (original, converted)]
    largest = torch.maximum(sums[0], sums[1]) * SLACK
    extra = (products[0] * sums[0] + products[1] * sums[1] + max(terms) * underflow(kind)) * SLACK**2 * 2 * input_range
    biases = torch.zeros(len(largest)) if original.weights.bias is None else original.weights.bias.double().abs()
    return [
        (difference_bound(s, b, input_range, bounds[0], bounds[1], mixing=mixing) + more) * SLACK
        for s, b, more in zip(largest.tolist(), biases.tolist(), extra.tolist(), strict=True)
    ]


def has_bias(reading: Reading) -> bool:
    """Whether a bias is added."""
    return reading.weights.bias is not None


def fan_in(reading: Reading) -> int:
    """Input channels of a group."""
    return reading.channels[0] // reading.weights.groups


def mixing_bound(converted: Reading) -> RoundingBound | None:
    """What the heads' weighted means are off by, for mixing over all keys at once and for axis after axis.

    None where a target's weight is not 1 as computed. `(1 + f)^n - 1 <= 2 n f` for `n f <= 1`.
    """
    if not converted.alphas:
        return RoundingBound(0.0, 0.0)
    alpha, axes, kind = min(converted.alphas), converted.leak_axes, converted.format
    if any(converted.apart) or not alpha >= target_rounds_to_one_threshold(kind, axes):
        return None
    whole, one_axis = hard_mixing_bound(alpha, axes, kind), hard_mixing_bound(alpha, 1, kind)
    each = 2 * axes
    return RoundingBound(max(whole.factor, each * one_axis.factor), max(whole.absolute, each * one_axis.absolute))


def underflow(kind: str) -> float:
    """At least what a sum of up to 2^20 products loses by underflow."""
    return format_of(kind).smallest_subnormal * 2.0**20


def product_error(reading: Reading) -> float:
    """Relative error of forming `W_val W_out`, of the sum of the absolute products; 0 where no sum is formed."""
    weights = reading.weights
    if weights.value is None or weights.output is None or formed_exactly(weights):
        return 0.0
    form = format_of(reading.format)
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


def absolute_sums(reading: Reading) -> Tensor:
    """For each output channel, the sum of |W_out| |W_val| over heads and input channels, in float64."""
    value, output, groups = reading.weights.value, reading.weights.output, reading.weights.groups
    if value is None or output is None:
        factor = output if value is None else value
        assert factor is not None
        return factor.cpu().double().abs().sum((0, 2))
    inner = value.cpu().double().abs().sum(2).unflatten(1, (groups, -1))
    outer = output.cpu().double().abs().unflatten(1, (groups, -1))
    return torch.einsum("hgok,hgk->go", outer, inner).flatten()
