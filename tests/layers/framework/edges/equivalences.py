"""Layers that the framework calls equal are equal, both ways, with a certificate where both sides are linear."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from suite import convolutions, images_for, smallest_sides
from torch import nn

from conv2attn import convert
from conv2attn.errors import UnsupportedError
from conv2attn.layers.framework import compare, from_torch, to_torch
from conv2attn.layers.theorem import read_convolution
from conv2attn.testing import assert_same_output
from conv2attn.theory.basis import (
    Basis,
    Combination,
    Dense,
    Padding,
    Shift,
    Sites,
    Weights,
    as_affine_map,
    as_basis,
    as_matrix,
    basis_of,
    compose,
    evaluate,
)
from conv2attn.verdicts import Strength, Verdict

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")
HOLDS = (Verdict.HOLDS, Strength.PROVED, 0.0)


def answer(found):
    return found.verdict, found.strength, found.error


@given(st.data())
def test_convolutions_come_back_and_are_proved_to_be_the_same_map(data):
    conv = data.draw(convolutions(dtypes=[torch.float64], dimensions=[1, 2]))
    image, basis = data.draw(images_for(conv)), as_basis(conv)
    back = to_torch(basis)
    assert_same_output(back(image).detach(), conv(image).detach())
    if not isinstance(back, nn.Sequential):
        assert answer(compare(as_basis(back), basis, smallest_sides(conv))) == HOLDS


def test_a_converted_layer_is_its_convolution_with_a_certificate():
    """At alpha = 1024 float64 has nothing beside the target; at 128 it has, and the certificate says how much."""
    conv = nn.Conv2d(2, 3, 3, padding=1, stride=2)
    for alpha, verdict, most in ((1024, Verdict.HOLDS, 0.0), (128, Verdict.HOLDS, 1e-12), (1, Verdict.REFUTED, 9.0)):
        found = compare(as_basis(convert(conv, alpha=alpha)), as_basis(conv), (5, 6), 1e-12)
        assert (found.verdict, found.strength is Strength.PROVED) == (verdict, alpha == 1024)
        assert found.floor <= found.error <= most
    shuffled = as_basis(convert(conv, alpha=1024))
    order = torch.randperm(9)
    weights = Weights(None, shuffled.weights.taps()[order], shuffled.weights.bias)
    moved = Shift(tuple(read_convolution(conv).offsets[k] for k in order.tolist()))
    assert answer(compare(Basis(moved, weights, shuffled.padding, shuffled.sites), shuffled, (5, 6))) == HOLDS


@st.composite
def maps(draw):
    """A layer of shifts from 2 to 3 channels and from 4x5 pixels to as many: its numbers are whole, some the same."""
    offsets = draw(st.lists(st.tuples(*[st.integers(-1, 1)] * 2), min_size=1, max_size=3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 3)))
    taps = torch.randint(-2, 3, (3, 3, 2), generator=generator)[: len(offsets)].double()
    bias = draw(st.sampled_from([None, torch.ones(3).double(), torch.arange(3).double()]))
    mode, around = draw(st.sampled_from(["zeros", "replicate"])), draw(st.sampled_from([(1, 1), (0, 2)]))
    padding = Padding((around[0], 1), (around[1], 1), mode)
    return Basis(Shift(tuple(offsets)), Weights(None, taps, bias), padding, Sites((1, 1), (1, 1), (1, 1)))


@given(maps(), maps(), st.sampled_from([0.0, 0.5, 4.0, 40.0]))
def test_the_difference_of_two_maps_is_that_of_their_worst_input(first, second, tolerance):
    """Each output is furthest off at the input with the signs of its row; numbers are whole, so nothing rounds."""
    maps = [as_affine_map(each, (4, 5)) for each in (first, second)]
    (matrix, vector), (other, beside) = maps
    exact = ((matrix - other).abs().sum(1) + (vector - beside).abs()).max().item()
    found = compare(first, second, (4, 5), tolerance)
    assert found.verdict is (Verdict.HOLDS if exact <= tolerance else Verdict.REFUTED)
    assert found.strength is (Strength.BOUNDED if exact else Strength.PROVED)
    assert found.floor <= exact <= found.error <= max(exact, tolerance) * (1 + 1e-12)


def test_nothing_else_passes_for_the_same_map():
    taps = torch.ones(1, 2, 2, dtype=torch.float64)
    one = basis_of(Shift(((0,),)), Weights(None, taps), 1)
    nan = basis_of(Shift(((0,),)), Weights(None, taps * torch.nan), 1)
    for pair in ((nan, one), (one, nan), (nan, nan)):
        assert compare(*pair, (4,), 1e9).verdict is Verdict.UNDECIDED


def heads(value, output, groups=1, offsets=((0,), (1,))):
    return basis_of(Shift(offsets), Weights(value, output, None, groups), 1)


@pytest.mark.parametrize("groups", [1, 2])
def test_products_of_two_factors_are_compared_exactly(groups):
    """Heads in another basis of their channels, in another order and split in two are one map; the next float is not.

    Planted: one entry of one factor is the next float, which the product rounded to float64 need not show.
    """
    value, output = torch.randn(2, 4, 6 // groups).double(), torch.randn(2, 4, 4 // groups).double()
    layer, scale = heads(value, output, groups), torch.tensor([2.0, -0.25, 8.0, 1.0]).double()
    columns = scale.reciprocal().reshape(groups, 1, -1)
    scaled = (output.unflatten(1, (groups, -1)) * columns).flatten(1, 2)
    flipped = heads((scale[:, None] * value).flip(0), scaled.flip(0), groups, ((1,), (0,)))
    assert answer(compare(flipped, layer, (5,))) == HOLDS
    if groups == 1:
        halves = heads(
            torch.cat([value[:, :2], value[:, 2:]]), torch.cat([output[..., :2], output[..., 2:]]), 1, ((0,), (1,)) * 2
        )
        assert answer(compare(halves, layer, (5,))) == HOLDS
    for factor in (value, output):
        moved = factor.clone()
        moved[1, 0, 0] = torch.nextafter(moved[1, 0, 0], torch.tensor(9.0).double())
        other = heads(*(moved if each is factor else each for each in (value, output)), groups)
        found = compare(other, layer, (5,))
        assert (found.verdict, found.strength) == (Verdict.REFUTED, Strength.BOUNDED)
        assert 0 < found.floor <= found.error < 1e-13


def test_the_tolerance_is_compared_exactly_too():
    """A difference that equals the tolerance holds, and one above it by the last bit does not."""
    third = 1 / 3
    layer = heads(
        torch.full((1, 1, 2), third, dtype=torch.float64), torch.full((1, 1, 1), 0.5, dtype=torch.float64), 1, ((0,),)
    )
    zero = heads(None, torch.zeros(1, 1, 2, dtype=torch.float64), 1, ((0,),))
    assert answer(compare(layer, zero, (3,), third)) == (Verdict.HOLDS, Strength.BOUNDED, third)
    assert compare(layer, zero, (3,), math.nextafter(third, 0)).verdict is Verdict.REFUTED
    above = math.nextafter(third, 1)
    two = heads(None, torch.tensor([[[third], [above]]], dtype=torch.float64), 1, ((0,),))
    found = compare(two, heads(None, torch.zeros(1, 2, 1, dtype=torch.float64), 1, ((0,),)), (3,), third)
    assert (found.verdict, found.error >= above) == (Verdict.REFUTED, True)
    shifted = basis_of(
        Shift(((0,),)), Weights(None, zero.weights.output, torch.full((1,), third, dtype=torch.float64)), 1
    )
    assert answer(compare(layer, shifted, (3,), 2 * third)) == (Verdict.HOLDS, Strength.BOUNDED, 2 * third)
    assert compare(layer, shifted, (3,), math.nextafter(2 * third, 0)).verdict is Verdict.REFUTED
    mean = basis_of(
        Dense(torch.full((1, 2, 2), 0.5, dtype=torch.float64), (2,)),
        Weights(None, torch.ones(1, 1, 1, dtype=torch.float64)),
        1,
    )
    both = torch.stack([torch.eye(2), torch.eye(2).flip(0)]).double()
    parts = basis_of(Dense(both, (2,)), Weights(None, torch.full((2, 1, 1), 0.5, dtype=torch.float64)), 1)
    assert answer(compare(mean, parts, (2,))) == HOLDS  # other operators, the same map


def test_numbers_beyond_float64_are_compared():
    large = torch.full((1, 1, 1), 1e200, dtype=torch.float64)
    layer, again = heads(large, large, 1, ((0,),)), heads(2 * large, large / 2, 1, ((0,),))
    assert answer(compare(layer, again, (3,))) == HOLDS
    assert compare(layer, heads(None, large, 1, ((0,),)), (3,), 1.0).verdict is Verdict.REFUTED
    tiny = torch.full((1, 1, 1), 1e-200, dtype=torch.float64)
    assert compare(heads(tiny, tiny, 1, ((0,),)), heads(None, 0 * tiny, 1, ((0,),)), (3,)).verdict is Verdict.REFUTED


def test_a_convolution_of_converted_layers_is_one_attention_of_25_heads_in_the_interior():
    """Two 3x3 layers, converted, composed: 25 distinct heads away from the border, 49 where both pad."""
    layers = [convert(nn.Conv2d(1, 1, 3, padding=around, dtype=torch.float64)) for around in (0, 0, 1, 1)]
    for pair, heads in ((layers[:2], 25), (layers[2:], 49)):
        both = compose(as_basis(pair[1]), as_basis(pair[0]), (8, 7))
        assert len({matrix.numpy().tobytes() for matrix in as_matrix(both.mixing, (8, 7))}) == heads
        image = torch.randn(2, 1, 8, 7, dtype=torch.float64)
        assert_same_output(evaluate(both, image).detach(), pair[1](pair[0](image)).detach(), 1e-12)


@pytest.mark.parametrize("options", [{}, {"padding": 1, "stride": 2}, {"padding": 2, "dilation": 2}])
def test_depthwise_separable_pairs_are_one_basis_and_come_back(options):
    pair = nn.Sequential(nn.Conv2d(3, 6, 3, groups=3, **options), nn.Conv2d(6, 4, 1)).double()
    image, basis = torch.randn(2, 3, 9, 8, dtype=torch.float64), as_basis(pair)
    assert_same_output(evaluate(basis, image).detach(), pair(image).detach(), 1e-12)
    mixtures = torch.randn(2, 9, dtype=torch.float64)
    matrices = Weights(None, torch.randn(2, 4, 3, dtype=torch.float64), torch.randn(4, dtype=torch.float64))
    separable = Basis(Combination(mixtures, basis.operators), matrices, basis.padding, basis.sites)
    back = to_torch(separable)
    assert [type(part) for part in back] == [nn.Conv2d, nn.Conv2d]
    assert (back[0].groups, back[0].out_channels, back[1].kernel_size) == (3, 6, (1, 1))
    assert_same_output(evaluate(separable, image).detach(), back(image).detach(), 1e-12)
    found = compare(as_basis(back), separable, (5, 6), 1e-11)
    assert (found.verdict, found.strength) == (Verdict.HOLDS, Strength.BOUNDED)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("causal", [False, True])
def test_the_attention_of_transformer_layers_of_torch_is_one(batch_first, causal):
    """Encoder and decoder layers with each of their attentions replaced give the same output."""
    options = {"dim_feedforward": 16, "batch_first": batch_first, "dtype": torch.float64}
    encoder, decoder = (
        kind(8, 2, **options).eval() for kind in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    )
    tokens, memory = torch.randn(3, 6, 8, dtype=torch.float64), torch.randn(3, 5, 8, dtype=torch.float64)
    mask = torch.full((6, 6), -torch.inf, dtype=torch.float64).triu(1) if causal else None

    def attend(attention, asking, read, mask=None):
        return from_torch(attention)(read.mT, asking.mT, mask).mT

    def given(tokens):
        return tokens if batch_first else tokens.transpose(0, 1)

    first = encoder.norm1(tokens + attend(encoder.self_attn, tokens, tokens, mask))
    expected = encoder.norm2(first + encoder.linear2(encoder.linear1(first).relu()))
    assert_same_output(given(encoder(given(tokens), mask)).detach(), expected.detach(), 1e-12)
    first = decoder.norm1(tokens + attend(decoder.self_attn, tokens, tokens, mask))
    second = decoder.norm2(first + attend(decoder.multihead_attn, first, memory))
    expected = decoder.norm3(second + decoder.linear2(decoder.linear1(second).relu()))
    assert_same_output(given(decoder(given(tokens), given(memory), mask)).detach(), expected.detach(), 1e-12)


def test_a_layer_with_hooks_is_not_compared_by_its_parameters():
    plain, hooked = nn.Conv2d(2, 3, 3), nn.Conv2d(2, 3, 3)
    hooked.load_state_dict(plain.state_dict())
    assert answer(compare(plain, hooked, (5, 6))) == HOLDS
    hooked.register_forward_hook(lambda module, arguments, output: 2 * output)
    for pair in ((plain, hooked), (hooked, plain), (plain, convert(hooked))):
        with pytest.raises(UnsupportedError, match=r"C2A106 .* has hooks"):
            compare(*pair, (5, 6))
    on_all_modules = nn.modules.module.register_module_forward_hook(lambda module, arguments, output: 2 * output)
    with on_all_modules, pytest.raises(UnsupportedError, match=r"C2A106 Conv2d has hooks"):
        compare(plain, convert(plain), (5, 6))
