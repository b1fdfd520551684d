"""The bound on two layers is put together from bounds that are licensed: nothing is left out, or counted otherwise."""

import math
from dataclasses import replace

import pytest
import torch
from changes import changing
from equality.layers.edges.rounding import layer
from equality.pairs import row_of

import conv2attn
from conv2attn.equality import Pair, comparable_basis, difference_bounds, soft_heads
from conv2attn.layers.attention import arithmetics, score_error
from conv2attn.theory.basis import Basis, EnumeratedSoftmax, QuadraticSoftmax, Sites
from conv2attn.theory.bounds import (
    Head,
    RoundingBound,
    convolution_bound,
    difference_bound,
    hard_mixing_bound,
    leaked_mass_diagonal,
    soft_reading,
    target_rounds_to_one_threshold,
)

SIDES = (12, 11)
AUTO = ("auto",), ("auto",)


def pair(*layers, engines=AUTO):
    """Two layers, or bases, none of which torch computes as a transposed convolution."""
    return Pair(
        *(each if isinstance(each, Basis) else comparable_basis(each) for each in layers), (False, False), engines
    )


def soft(original, alpha, shift=0.0, engine="auto"):
    """The attention of a convolution, with heads of this sharpness beside their pixels."""
    found = conv2attn.convert(original, alpha=alpha)
    with changing(found, "center") as numbers:
        numbers[:, 0] += shift
    return conv2attn.set_engine(found, engine)


def of_heads(made, alpha, shift, engine):
    """The leak of a layer, and what its means are off by."""
    head = Head(alpha, (shift, 0.0), shift**2 * (1 + 2.0**-40))
    features = score_error(made.encoding.operators().numbers(), max(SIDES), torch.float32) if engine == "sdpa" else 0.0
    kinds = arithmetics(engine, torch.float32, "cpu")
    ulps, sharp = max(kind.exp_ulps for kind in kinds), head.sharpness("float32") - 2 * features
    if sharp >= target_rounds_to_one_threshold("float32", 2, ulps):
        stores = any(kind.stores_means for kind in kinds)
        both, one = (hard_mixing_bound(sharp, axes, "float32", ulps, stores=stores) for axes in (2, 1))
        return 0.0, max(both.factor, 4 * one.factor), max(both.absolute, 4 * one.absolute)
    leaks, means = zip(*(soft_reading(head, SIDES, kind, features) for kind in kinds), strict=True)
    assert max(leaks) >= leaked_mass_diagonal([alpha, alpha], [shift, 0.0])
    return max(leaks), max(mean.factor for mean in means), max(mean.absolute for mean in means)


HARD = target_rounds_to_one_threshold(
    "float32", 2, max(kind.exp_ulps for kind in arithmetics("auto", torch.float32, "cpu"))
)
CASES = {
    "a convolution and an attention": (None, (3.0, 0.0, "auto")),
    "an attention that leaks more, and another": ((1.5, 0.0, "auto"), (6.0, 0.0, "auto")),
    "an attention that leaks less, and another": ((6.0, 0.0, "auto"), (1.5, 0.0, "auto")),
    "centres beside pixels": (None, (4.0, 0.25, "auto")),
    "centres beside pixels that hardly leak": (None, (14.0, 0.125, "auto")),
    "fused attention": (None, (2.0, 0.0, "sdpa")),
    "fused attention that hardly leaks": (None, (12.0, 0.0, "sdpa")),
    "attention that is hard": (None, (HARD + 0.01, 0.0, "auto")),
    "attention that is nearly hard": (None, (HARD - 0.01, 0.0, "auto")),
    "fused attention that is hard": (None, (18.5, 0.0, "sdpa")),
}


@pytest.mark.parametrize("reach", [1.5, 2.0**-146])
@pytest.mark.parametrize("name", CASES)
def test_the_bound_of_two_layers_is_its_parts(name, reach):
    original = layer((4, 5))
    made = [original if case is None else soft(original, *case) for case in CASES[name]]
    engines = tuple(("auto",) if case is None else (case[2],) for case in CASES[name])
    found = difference_bounds(pair(*made, engines=engines), reach, SIDES)
    parts = [(0.0, 0.0, 0.0) if c is None else of_heads(m, *c) for m, c in zip(made, CASES[name], strict=True)]
    leak, factor, absolute = (math.fsum(each) for each in zip(*parts, strict=True))
    rounding = convolution_bound(36, "float32", casts=2, stored=2)
    sums = original.weight.detach().double().abs().sum((1, 2, 3)).tolist()
    for bound, weights, bias in zip(found, sums, original.bias.double().tolist(), strict=True):
        expected = difference_bound(
            weights, bias, reach, rounding, rounding, leak=leak, mixing=RoundingBound(factor, absolute)
        )
        assert expected * (1 - 2.0**-20) <= bound <= expected * (1 + 2.0**-20)


def factored(d_out, d_head):
    """An attention with both factors, which are to be filled."""
    right = conv2attn.convert(layer((4, d_out)))
    options = {"d_head": d_head, "padding": right.image_padding}
    return conv2attn.layers.attention.MultiHeadSelfAttention(4, d_out, right.encoding, **options)


def test_the_rounding_of_products_of_factors_is_counted():
    """Beside the same taps as one factor; positive factors, so that sums of absolute products are the taps."""
    made = factored(5, 8)
    with torch.no_grad():
        for factor in (made.value, made.output):
            factor.copy_(torch.rand(factor.shape, generator=torch.Generator().manual_seed(0)))
    basis = comparable_basis(made)
    taps = basis.weights.taps()
    stored = replace(basis, weights=replace(basis.weights, value=None, output=taps))
    two, one = (difference_bounds(pair(side, side), 1.0, SIDES) for side in (basis, stored))
    for formed, plain, size in zip(two, one, taps.double().sum((0, 2)).tolist(), strict=True):
        assert formed - plain >= 2 * 8 * 2.0**-24 * size  # Higham 2002, Eq. (3.5), in both layers


def test_products_of_factors_that_all_underflow_are_counted():
    """Each is half of the smallest subnormal number, and is lost."""
    made = factored(1, 64)
    for factor in (made.value, made.output):
        factor.data.fill_(2.0**-75)
    basis = comparable_basis(made)
    assert not basis.weights.taps().any()
    (bound,) = difference_bounds(pair(basis, basis), 1.0, SIDES)
    assert bound >= 2 * 36 * 64 * 2.0**-150


def test_the_second_layer_is_evaluated_by_the_engine_that_is_set():
    original = layer((4, 5))
    bounds = {
        engine: certified(original, soft(original, 2.0, engine=engine)) for engine in ("dense", "separable", "sdpa")
    }
    assert bounds["sdpa"] > max(bounds["dense"], bounds["separable"])


def certified(original, converted):
    """The bound in a certificate."""
    return row_of(original, converted, torch.ones(1, 4, 10, 9)).bound


@pytest.mark.parametrize(("alpha", "bounded"), [(128.0, True), (3.0, False)])
def test_soft_heads_have_no_bound_where_sums_may_be_truncated(alpha, bounded, monkeypatch):
    truncating = [replace(kind, truncates=True) for kind in arithmetics("auto", torch.float32, "cpu")]
    monkeypatch.setattr("conv2attn.equality.layers.rounding.arithmetics", lambda *_: truncating)
    convolution = torch.nn.Conv2d(4, 4, 3, padding=1)
    assert (difference_bounds(pair(convolution, soft(convolution, alpha)), 1.0, SIDES) is not None) is bounded


@pytest.mark.parametrize("family", [QuadraticSoftmax, EnumeratedSoftmax])
def test_heads_on_pixels_of_the_grid_are_at_no_distance_from_them(family):
    centres = torch.cartesian_prod(torch.arange(-1.0, 2.0), torch.arange(-2.0, 1.0))
    heads = soft_heads(family(centres, torch.ones(9)), Sites((1, 1), (1, 2), (1, 0)))
    assert {(*head.shifts, head.distance, head.outside) for head in heads} <= {
        (0.0, 0.0, False),
        (0.0, 0.0, 0.0, False),
    }
