"""The bound on the difference of two layers as computed, for all finite inputs up to a range."""

import torch
from torch import Tensor

from conv2attn.bounds import RoundingBound, convolution_bound, difference_bound, format_of
from conv2attn.equivalence.computed.arithmetic import Arithmetic, gradual_underflow
from conv2attn.equivalence.computed.mixing import lost, mixing_bound, product_error
from conv2attn.equivalence.readings.places import single, summed
from conv2attn.equivalence.readings.reading import Reading
from conv2attn.errors import UsageError

SLACK = 1 + 2.0**-30  # pays for the float64 sums here: fewer than 2^22 terms, each rounded once


def difference_bounds(
    original: Reading, converted: Reading, input_range: float, padded_sides: tuple[int, ...]
) -> list[float] | None:
    """For each output channel a bound on |converted - original| as computed, for all finite |x| <= input_range.

    Counts both sides' rounding, the leak, and what taps and biases differ by; for every engine, on grids of up to
    `padded_sides`, which only matter where a head is soft. Assumes equal geometry, direct summation and no overflow.
    None where the sums are so long that nothing can be said, and where weights that are not one-hot mix in sums that
    may be stored in half precision on the way.

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
    if kind in settings.stored_sums and mixing != RoundingBound(0.0, 0.0):
        return None
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
    if single(original) and single(converted) and original.starts == converted.starts:
        assert original.taps is not None
        assert converted.taps is not None
        if original.weights.groups == converted.weights.groups and torch.equal(original.taps, converted.taps):
            return torch.zeros(original.channels[1], dtype=torch.float64)
    places = tuple(dict.fromkeys((*original.starts, *converted.starts)))
    ours, theirs = (summed(side, places) for side in (original, converted))
    doubt = 0.0 if single(original) and single(converted) else (original.magnitudes + converted.magnitudes) * 2.0**-30
    return (ours - theirs).abs().sum((0, 2)) + doubt


def largest_biases(original: Reading, converted: Reading) -> list[float]:
    """For each output channel the larger |bias|."""
    biases = [side.weights.bias for side in (original, converted) if side.weights.bias is not None]
    if not biases:
        return [0.0] * original.channels[1]
    return torch.stack([bias.cpu().double().abs() for bias in biases]).amax(0).tolist()


def fan_in(reading: Reading) -> int:
    """Input channels of a group."""
    return reading.channels[0] // reading.weights.groups
