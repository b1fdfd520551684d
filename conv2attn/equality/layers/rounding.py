"""Forward error analysis: bounds on the computed difference of two layers, for all finite inputs up to a range."""

import math
from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor

from conv2attn.equality.layers.bases import Pair, format_of_weights, gradual_underflow, heads_of, working_heads
from conv2attn.errors import UsageError
from conv2attn.layers.attention.features import score_error
from conv2attn.layers.attention.measured_arithmetic import arithmetics
from conv2attn.layers.attention.recipe import score_dtype
from conv2attn.theory.basis import Basis, Weights
from conv2attn.theory.bounds import (
    WITHOUT_THEOREM,
    Arithmetic,
    ArithmeticPremises,
    CentredPremises,
    Claimed,
    RoundingBound,
    claims_of,
    claims_under,
    difference_bound,
    format_of,
    gamma,
    hard_mixing_bound,
    soft_reading,
    target_rounds_to_one_threshold,
    worst,
)

ROUNDED = 1 + 2.0**-7  # covers the rounding of sums of up to 2^16 terms
SLACK = 1 + 2.0**-30  # covers the float64 sums here: fewer than 2^22 terms, each rounded once


def difference_bounds(pair: Pair, input_range: float, padded_sides: tuple[int, ...]) -> list[Claimed] | None:
    """For each output channel, a bound on the computed |converted - original| for all finite |x| <= input_range.

    It covers the rounding of both layers, the leak, and the differences of taps and biases, for the engines that are
    set, and for all that "auto" may select. It assumes equal forms, direct summation, no overflow, and grids of up to
    `padded_sides`. None if the sums are too long for a bound, if the leak of a soft head is unknown, or if soft heads
    mix in sums that may be truncated.

    Source: bounds.difference_bound; Cordonnier et al. 2020, Theorem 1, with finite alpha.
    """
    with gradual_underflow() as flushing:
        original, converted = bases = pair.original, pair.converted
        like = converted.weights.stored
        # "auto" selects an engine by the size of the input, so a bound takes the worst of all candidates.
        settings = [
            tuple(chain.from_iterable(arithmetics(engine, like.dtype, like.device.type) for engine in engines))
            for engines in pair.engines
        ]
        kind = settings[0][0].format
        counts = [len(side.weights.stored) for side in bases]
        fan_in = original.weights.d_in // original.weights.groups, converted.weights.d_in // converted.weights.groups
        terms = [max(1, n * fan) for n, fan in zip(counts, fan_in, strict=True)]
        added = [count if scattered else 0 for count, scattered in zip(counts, pair.scattered, strict=True)]
        try:
            mixings = [mixing_bound(side, padded_sides, own) for side, own in zip(bases, settings, strict=True)]
            bounds = [worst(own).rounding(n, more) for own, n, more in zip(settings, terms, added, strict=True)]
            products = [product_errors(side, kind) for side in bases]
        except UsageError:
            return None
        leak = Claimed((mixings[0][0] + mixings[1][0]) * SLACK, claims_of(*(each for each, _ in mixings)))
        factor, absolute = (sum(getattr(m, part) for _, m in mixings) * SLACK for part in ("factor", "absolute"))
        mixing = RoundingBound(factor, absolute, claims_of(*(each for _, each in mixings)))
        # The mixing bound assumes sums that round to nearest; truncating sums may exceed it.
        if any(each.truncates for own in settings for each in own) and mixing != RoundingBound(0.0, 0.0):
            return None
        sums = pair.magnitudes
        largest = torch.maximum(sums[0], sums[1]) * SLACK
        underflow = sum(n * lost for n, (_, lost) in zip(terms, products, strict=True))
        extra = (products[0][0] * sums[0] + products[1][0] * sums[1] + underflow) * SLACK**2 * 2 * input_range
        first, second = map(bias_of, bases)
        extra = extra + (pair.gaps.abs().sum((0, 2)) * input_range + (first - second).abs()) * SLACK
        # The bound is affine in the sum of |weights| and in |bias|: three values of it serve all channels.
        numbers = coefficients(input_range, bounds[0], bounds[1], leak, mixing)
        per_weight, per_bias, constant = numbers
        biases = torch.maximum(first.abs(), second.abs())
        if flushing or format_of(kind).cuts or any(each.flushes for own in settings for each in own):
            extra = extra + flushed(format_of_weights(original), largest, sum(terms), input_range)
        claims = claims_of(*numbers) | ({WITHOUT_THEOREM} if extra.any() else set())
        bound = (largest * per_weight + biases * per_bias + constant + extra) * SLACK
        return [Claimed(each, claims) for each in bound.tolist()]


def flushed(stored: str, sums: Tensor, terms: int, input_range: float) -> Tensor:
    """For each output channel, the loss of both layers if subnormal numbers become 0 or are truncated.

    Each flushed number is below the smallest normal number of the accumulator. The error of an input counts times its
    weight, that of a weight times its input, that of a product or sum once. The inputs are mixed axis by axis, and cast
    once more.
    """
    smallest = format_of(format_of(stored).accumulator).smallest_normal
    return 8 * smallest * (sums + terms * (input_range + 1) + 2)


def coefficients(
    input_range: float, original: RoundingBound, converted: RoundingBound, leak: float, mixing: RoundingBound
) -> tuple[Claimed, Claimed, Claimed]:
    """The coefficients of `bounds.difference_bound` in `S per_weight + |b| per_bias + constant`, each rounded up."""
    first, second = (RoundingBound(side.factor, 0.0, side.claims) for side in (original, converted))
    return (
        difference_bound(1.0, 0.0, input_range, first, second, leak=leak, mixing=mixing),
        difference_bound(0.0, 1.0, input_range, first, second, leak=leak, mixing=mixing),
        difference_bound(0.0, 0.0, input_range, original, converted, leak=leak, mixing=mixing),
    )


def bias_of(basis: Basis) -> Tensor:
    """The bias of each output channel in float64."""
    bias = basis.weights.bias
    return torch.zeros(basis.weights.d_out, dtype=torch.float64, device="cpu") if bias is None else bias.cpu().double()


def overflow(pair: Pair, side: int, input_range: float) -> str:
    """The reason why no bound holds for all |x| <= input_range: an output exceeds the format; empty if none can.

    The largest output is `sum |w| input_range + |b|`, attained by the input with the signs of the weights; no partial
    sum in any order exceeds it.
    """
    if not math.isfinite(input_range):
        return "its inputs are not finite"
    basis = (pair.original, pair.converted)[side]
    kind = format_of_weights(basis)
    largest = (pair.magnitudes[side] * input_range + bias_of(basis).abs()).max().item()
    limit = format_of(kind).largest
    if largest * ROUNDED <= limit:
        return ""
    reached = f"sums of inputs within +-{input_range:.3g} reach {largest:.3g}, and {kind} ends at {limit:.3g}"
    whose = ("the first network", "the second network")[side]
    return f"{whose} can overflow at this range: {reached}"


def mixing_bound(
    basis: Basis, padded_sides: tuple[int, ...], arithmetics: Sequence[Arithmetic]
) -> tuple[Claimed, RoundingBound]:
    """The leak in real arithmetic, and the further rounding error of the heads' weighted means, per arithmetic.

    If the target's computed weight is 1, the leak is part of the second number alone. This holds for mixing over all
    keys at once and axis by axis: `(1 + f)^n - 1 <= 2 n f` for `n f <= 1`.

    Raises:
        UsageError: there are too many keys, or too little is known of the heads, for a bound.
    """
    every = heads_of(basis)
    heads = {every[head] for head in working_heads(basis)} if every else set()
    if not heads:
        return Claimed(0.0), RoundingBound(0.0, 0.0)
    kind, axes, features = arithmetics[0].format, every[0].axes, 0.0
    if any(each.fused for each in arithmetics):  # scores are inner products of absolute features
        features = score_error(basis.operators.numbers(), max(padded_sides), score_dtype(basis.weights.stored.dtype))
    # Scores by features have an error of `features` each, so a gap between two of them shrinks by twice that.
    alpha = min(head.sharpness(kind) for head in heads) - 2 * features
    ulps = max(each.exp_ulps for each in arithmetics)
    if alpha >= target_rounds_to_one_threshold(kind, axes, ulps):
        stores = any(each.stores_means for each in arithmetics)
        whole, one_axis = (hard_mixing_bound(alpha, n, kind, ulps, stores=stores) for n in (axes, 1))
        apart = RoundingBound(2 * axes * one_axis.factor, 2 * axes * one_axis.absolute, one_axis.claims)
        mixing = greatest([whole, apart])
        claims = mixing.claims.union(*(head.number_claims for head in heads))
        premises: list[CentredPremises | ArithmeticPremises] = [head.centred for head in heads]
        if mixing.factor:  # if all these weights are computed as 0, so they are in every engine
            premises += [ArithmeticPremises.of(each) for each in arithmetics]
        claims = claims_under(premises, "SOFT", *claims)
        return Claimed(0.0), RoundingBound(mixing.factor, mixing.absolute, claims)
    read = [soft_reading(head, padded_sides, each, features) for head in heads for each in arithmetics]
    leaks = [leak for leak, _ in read]
    return Claimed(max(leaks), claims_of(*leaks)), greatest([mixing for _, mixing in read])


def greatest(bounds: Sequence[RoundingBound]) -> RoundingBound:
    """The larger factor and the larger absolute part of all bounds."""
    factor, absolute = max(bound.factor for bound in bounds), max(bound.absolute for bound in bounds)
    return RoundingBound(factor, absolute, claims_of(*bounds))


def product_errors(basis: Basis, kind: str) -> tuple[float, float]:
    """The errors of forming `W_val W_out`: relative to the sum of the absolute products, and by underflow of an entry;
    0 where no sum is formed."""
    weights, form = basis.weights, format_of(kind)
    if weights.value is None or weights.output is None or (formed_exactly(weights) and not form.cuts):
        return 0.0, 0.0
    terms = weights.output.shape[2] + 2
    return 2 * gamma(terms, form.unit_roundoff), terms * form.smallest_subnormal


def formed_exactly(weights: Weights) -> bool:
    """Whether each entry of `W_val W_out` is at most one product that the dtype represents: permutations, scales."""
    value, output, groups = weights.value, weights.output, weights.groups
    assert value is not None
    assert output is not None
    # With at most one product per entry, the entry is exact if the dtype represents it, as for permutations and powers
    # of two.
    alone = (output != 0).sum(2).max() <= 1 or (value.unflatten(1, (groups, -1)) != 0).sum(2).max() <= 1
    if not alone or value.dtype == torch.float64:
        return False
    wide = Weights(value.cpu().double(), output.cpu().double(), None, groups)
    return torch.equal(weights.taps().cpu().double(), wide.taps())


def has_blind_outputs(basis: Basis, shape: Sequence[int]) -> bool:
    """Whether inputs of this shape have a batch, and a middle pixel on which most outputs do not depend.

    Padding other than zeros may copy the pixel in the middle.
    """
    if len(shape) != len(basis.form.stride) + 2:
        return False
    amounts = zip(basis.padding.before, basis.padding.after, shape[2:], strict=True)
    return basis.padding.mode == "zeros" or all(max(b, a) < (side - 1) // 2 for b, a, side in amounts)


def seeing(basis: Basis, sides: Sequence[int]) -> tuple[slice, ...]:
    """For each axis, a range of outputs that includes all that depend on the middle pixel."""
    form, starts, around = basis.form, basis.starts, list[slice]()
    for axis, side in enumerate(sides):
        at = form.spacing[axis] * (side // 2)
        outputs = [(at - start[axis]) // form.stride[axis] for start in starts]
        around.append(slice(max(0, min(outputs)), max(0, max(outputs) + 2)))
    return tuple(around)
