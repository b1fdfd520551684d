"""Forward error analysis: bounds on the difference of two layers as computed, for all finite inputs up to a range."""

import math

import torch
from torch import Tensor

from conv2attn.basis import Basis
from conv2attn.bounds import RoundingBound, difference_bound, format_of
from conv2attn.equivalence.arithmetic import Arithmetic, gradual_underflow
from conv2attn.equivalence.bases import Pair, format_of_weights, taps_of
from conv2attn.equivalence.mixing import lost, mixing_bound, product_error
from conv2attn.equivalence.tap_sums import is_plain, summed
from conv2attn.errors import UsageError

ROUNDED = 1 + 2.0**-7  # pays for the rounding of sums of up to 2^16 terms
SLACK = 1 + 2.0**-30  # pays for the float64 sums here: fewer than 2^22 terms, each rounded once


def difference_bounds(pair: Pair, input_range: float, padded_sides: tuple[int, ...]) -> list[float] | None:
    """For each output channel a bound on |converted - original| as computed, for all finite |x| <= input_range.

    Counts the rounding of both layers, the leak, and the differences of taps and biases; for every engine, on grids of
    up to `padded_sides`, which matter only where a head is soft. Assumes equal forms, direct summation and no overflow.
    None where the sums are so long that nothing can be said, and where soft heads mix in sums that may be truncated,
    or stored in half precision on the way.

    Source: bounds.difference_bound; Cordonnier et al. 2020, Theorem 1, with finite alpha.
    """
    with gradual_underflow() as flushing:
        return bounds_with_subnormals(pair, input_range, padded_sides, flushing=flushing)


def bounds_with_subnormals(
    pair: Pair, input_range: float, padded_sides: tuple[int, ...], *, flushing: bool
) -> list[float] | None:
    """`difference_bounds` where this thread computes with subnormal numbers; the layers may be `flushing` them."""
    original, converted = bases = pair.original, pair.converted
    settings = Arithmetic.of(converted.weights.stored.device.type)
    kind = settings.format(format_of_weights(original))
    counts = [len(side.weights.stored) for side in bases]
    terms = [max(1, count * fan_in(side)) for count, side in zip(counts, bases, strict=True)]
    added = [count if scattered else 0 for count, scattered in zip(counts, pair.scattered, strict=True)]
    try:
        mixings = [mixing_bound(side, padded_sides, kind) for side in bases]
        bounds = [settings.rounding(kind, n, more) for n, more in zip(terms, added, strict=True)]
        products = [product_error(side, kind) for side in bases]
    except UsageError:
        return None
    leak = (mixings[0][0] + mixings[1][0]) * SLACK
    mixing = RoundingBound(*(sum(getattr(m, part) for _, m in mixings) * SLACK for part in ("factor", "absolute")))
    if not settings.bounds_means(kind) and mixing != RoundingBound(0.0, 0.0):
        return None
    sums = pair.magnitudes
    largest = torch.maximum(sums[0], sums[1]) * SLACK
    underflow = sum(n * lost(side, kind) for n, side in zip(terms, bases, strict=True))
    extra = (products[0] * sums[0] + products[1] * sums[1] + underflow) * SLACK**2 * 2 * input_range
    taps, offs = differences(pair)
    extra = extra + taps * SLACK * input_range + offs
    per_weight, per_bias, constant = coefficients(input_range, bounds[0], bounds[1], leak, mixing)
    biases = torch.tensor(largest_biases(original, converted), dtype=torch.float64)
    if flushing or format_of(kind).cuts:
        extra = extra + flushed(format_of_weights(original), largest, sum(terms), input_range)
    return ((largest * per_weight + biases * per_bias + constant + extra) * SLACK).tolist()


def flushed(stored: str, sums: Tensor, terms: int, input_range: float) -> Tensor:
    """For each output channel, what both layers lose where subnormal numbers become 0, or are cut.

    An input that does costs its weight, a weight its input, and a product or a sum itself: at most the smallest normal
    number of the accumulator each; the inputs are mixed axis after axis, and cast once more.
    """
    smallest = format_of(format_of(stored).accumulator).smallest_normal
    return 8 * smallest * (sums + terms * (input_range + 1) + 2)


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


def differences(pair: Pair) -> tuple[Tensor, Tensor]:
    """For each output channel, upper bounds on the sum of |differences of weights| and on that of the biases."""
    zero = torch.zeros(pair.original.weights.d_out, dtype=torch.float64)
    biases = (side.weights.bias for side in (pair.original, pair.converted))
    first, second = (zero if bias is None else bias.cpu().double() for bias in biases)
    return tap_differences(pair), (first - second).abs() * SLACK


def tap_differences(pair: Pair) -> Tensor:
    """For each output channel an upper bound on the sum of |differences of weights|: 0 where they plainly are equal."""
    original, converted = pair.original, pair.converted
    plain = is_plain(original) and is_plain(converted)
    if plain and original.starts == converted.starts and original.weights.groups == converted.weights.groups:
        ours, theirs = taps_of(original), taps_of(converted)
        if ours is not None and theirs is not None and torch.equal(ours, theirs):
            return torch.zeros(original.weights.d_out, dtype=torch.float64)
    places = tuple(dict.fromkeys((*original.starts, *converted.starts)))
    ours, theirs = (summed(side, places) for side in (original, converted))
    doubt = 0.0 if plain else (pair.magnitudes[0] + pair.magnitudes[1]) * 2.0**-30
    return (ours - theirs).abs().sum((0, 2)) + doubt


def largest_biases(original: Basis, converted: Basis) -> list[float]:
    """For each output channel the larger |bias|."""
    biases = [side.weights.bias for side in (original, converted) if side.weights.bias is not None]
    if not biases:
        return [0.0] * original.weights.d_out
    return torch.stack([bias.cpu().double().abs() for bias in biases]).amax(0).tolist()


def fan_in(basis: Basis) -> int:
    """Input channels of a group."""
    return basis.weights.d_in // basis.weights.groups


def overflow(pair: Pair, side: int, input_range: float) -> str:
    """Why no bound holds for all |x| <= input_range, since some output exceeds the format; empty if none can.

    The largest is `sum |w| input_range + |b|`, which the input with the signs of the weights attains, and no partial
    sum of any order exceeds it.
    """
    if not math.isfinite(input_range):
        return "its inputs are not finite"
    basis = (pair.original, pair.converted)[side]
    kind = format_of_weights(basis)
    biases = torch.tensor(largest_biases(basis, basis), dtype=torch.float64)
    largest = (pair.magnitudes[side] * input_range + biases).max().item()
    limit = format_of(kind).largest
    if largest * ROUNDED <= limit:
        return ""
    reached = f"sums of inputs within +-{input_range:.3g} reach {largest:.3g}, and {kind} ends at {limit:.3g}"
    whose = ("the original", "the second")[side]
    return f"{whose} can overflow at this range: {reached}"
