"""The bound on the difference of two layers as computed, for all finite inputs up to a range."""

import math

import torch
from torch import Tensor

from conv2attn.attention import Weights
from conv2attn.basis import Offset
from conv2attn.bounds import (
    RoundingBound,
    convolution_bound,
    difference_bound,
    format_of,
    gamma,
    hard_mixing_bound,
    soft_mixing_bound,
    target_rounds_to_one_threshold,
)
from conv2attn.certificates.computed.arithmetic import Arithmetic, gradual_underflow
from conv2attn.certificates.readings.exact import dense
from conv2attn.certificates.readings.reading import Reading
from conv2attn.errors import UsageError

SLACK = 1 + 2.0**-30  # pays for the float64 sums here: fewer than 2^22 terms, each rounded once


def difference_bounds(
    original: Reading, converted: Reading, input_range: float, padded_sides: tuple[int, ...]
) -> list[float] | None:
    """For each output channel a bound on |converted - original| as computed, for all finite |x| <= input_range.

    Counts both sides' rounding, the leak, and what taps and biases differ by; for every engine, on grids of up to
    `padded_sides`, which only matter where a head is soft. Assumes equal geometry, direct summation and no overflow.
    None where the sums are so long that nothing can be said.

    Source: bounds.difference_bound; Cordonnier et al. 2020, Theorem 1, with finite alpha.
    """
    with gradual_underflow() as flushing:
        return bounds_on_paper(original, converted, input_range, padded_sides, flushing=flushing)


def bounds_on_paper(
    original: Reading, converted: Reading, input_range: float, padded_sides: tuple[int, ...], *, flushing: bool
) -> list[float] | None:
    """The same, where this is computed with subnormal numbers, and the layers with or without them."""
    device = next(w for w in (converted.weights.output, converted.weights.value) if w is not None).device.type
    settings = Arithmetic.of(device)
    kind = settings.format(original.format)
    try:
        mixings = [mixing_bound(side, padded_sides, kind) for side in (original, converted)]
        terms = [max(1, len(side.starts) * fan_in(side)) for side in (original, converted)]
        sides = list(zip(terms, (original, converted), strict=True))
        casts = [settings.casts(kind, n) + side.partial_sums for n, side in sides]
        bounds = [convolution_bound(n, kind, bias=True, casts=c) for n, c in zip(terms, casts, strict=True)]
        products = [product_error(side, kind) for side in (original, converted)]
    except UsageError:
        return None
    leak = (mixings[0][0] + mixings[1][0]) * SLACK
    mixing = RoundingBound(*(sum(getattr(m, part) for _, m in mixings) * SLACK for part in ("factor", "absolute")))
    sums = [side.magnitudes for side in (original, converted)]
    largest = torch.maximum(sums[0], sums[1]) * SLACK
    underflow = sum(n * lost(side, kind) for n, side in sides)
    extra = (products[0] * sums[0] + products[1] * sums[1] + underflow) * SLACK**2 * 2 * input_range
    taps, offs = what_differs(original, converted)
    extra = extra + taps * SLACK * input_range + offs
    per_weight, per_bias, constant = coefficients(input_range, bounds[0], bounds[1], leak, mixing)
    biases = torch.tensor(largest_biases(original, converted), dtype=torch.float64)
    if flushing or format_of(kind).cuts:
        extra = extra + flushed(original, largest, sum(terms), input_range)
    return ((largest * per_weight + biases * per_bias + constant + extra) * SLACK).tolist()


def flushed(reading: Reading, magnitudes: Tensor, terms: int, input_range: float) -> Tensor:
    """For each output channel, what both layers lose where subnormal numbers become 0, or are cut.

    An input that does costs its weight, a weight its input, and a product or a sum itself: at most the smallest normal
    number of the accumulator each; the inputs are mixed axis after axis, and cast once more.
    """
    smallest = format_of(format_of(reading.format).accumulator).smallest_normal
    return 8 * smallest * (magnitudes + terms * (input_range + 1) + 2)


def coefficients(
    input_range: float, original: RoundingBound, converted: RoundingBound, leak: float, mixing: RoundingBound
) -> tuple[float, float, float]:
    """`bounds.difference_bound` as `S per_weight + |b| per_bias + constant`, which it is; each is rounded up."""
    first, second = (RoundingBound(side.factor, 0.0) for side in (original, converted))
    return (
        difference_bound(1.0, 0.0, input_range, first, second, leak=leak, mixing=mixing),
        difference_bound(0.0, 1.0, input_range, first, second, leak=leak, mixing=mixing),
        difference_bound(0.0, 0.0, input_range, original, converted, leak=leak, mixing=mixing),
    )


def what_differs(original: Reading, converted: Reading) -> tuple[Tensor, Tensor]:
    """For each output channel, upper bounds on the sum of |differences of weights| and on that of the biases."""
    zero = torch.zeros(original.channels[1], dtype=torch.float64)
    first, second = (
        zero if side.weights.bias is None else side.weights.bias.cpu().double() for side in (original, converted)
    )
    return tap_differences(original, converted), (first - second).abs() * SLACK


def tap_differences(original: Reading, converted: Reading) -> Tensor:
    """For each output channel an upper bound on the sum of |differences of weights|: 0 where they plainly are equal."""
    if plain(original) and plain(converted) and original.starts == converted.starts:
        assert original.taps is not None
        assert converted.taps is not None
        if original.weights.groups == converted.weights.groups and torch.equal(original.taps, converted.taps):
            return torch.zeros(original.channels[1], dtype=torch.float64)
    places = tuple(dict.fromkeys((*original.starts, *converted.starts)))
    ours, theirs = (summed(side, places) for side in (original, converted))
    doubt = 0.0 if plain(original) and plain(converted) else (original.magnitudes + converted.magnitudes) * 2.0**-30
    return (ours - theirs).abs().sum((0, 2)) + doubt


def plain(reading: Reading) -> bool:
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


def largest_biases(original: Reading, converted: Reading) -> list[float]:
    """For each output channel the larger |bias|."""
    biases = [side.weights.bias for side in (original, converted) if side.weights.bias is not None]
    if not biases:
        return [0.0] * original.channels[1]
    return torch.stack([bias.cpu().double().abs() for bias in biases]).amax(0).tolist()


def fan_in(reading: Reading) -> int:
    """Input channels of a group."""
    return reading.channels[0] // reading.weights.groups


def mixing_bound(reading: Reading, padded_sides: tuple[int, ...], kind: str) -> tuple[float, RoundingBound]:
    """The leak in real arithmetic and what the heads' weighted means are off by beside it.

    Both hold for mixing over all keys at once and for axis after axis: `(1 + f)^n - 1 <= 2 n f` for `n f <= 1`. Where
    the target's weight is 1 as computed, the leak is counted in the second alone.

    Raises:
        UsageError: there are so many keys that nothing can be said.
    """
    positions = reading.positions
    if positions is None or not positions.alphas:
        return 0.0, RoundingBound(0.0, 0.0)
    heads, axes = positions.distinct(), positions.axes
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
