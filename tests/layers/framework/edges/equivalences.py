"""Layers that the framework calls equal are equal, both ways, as matrices where both sides are linear."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from suite import convolutions, images_for, smallest_sides
from torch import nn

from conv2attn import convert
from conv2attn.layers.framework import to_torch
from conv2attn.testing import assert_same_output
from conv2attn.theory.basis import (
    Basis,
    Combination,
    Weights,
    as_affine_map,
    as_basis,
    as_matrix,
    compose,
    evaluate,
)

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")


def difference(first, second, sides):
    """By how much an output of two maps differs at most, for inputs within [-1, 1]."""
    (matrix, vector), (other, beside) = (as_affine_map(each, sides) for each in (first, second))
    return ((matrix - other).abs().sum(1) + (vector - beside).abs()).max().item()


@given(st.data())
def test_convolutions_come_back_and_are_proved_to_be_the_same_map(data):
    conv = data.draw(convolutions(dtypes=[torch.float64], dimensions=[1, 2]))
    image, basis = data.draw(images_for(conv)), as_basis(conv)
    back = to_torch(basis)
    assert_same_output(back(image).detach(), conv(image).detach())
    if not isinstance(back, nn.Sequential):
        assert difference(as_basis(back), basis, smallest_sides(conv)) == 0


def test_a_converted_layer_is_the_map_of_its_convolution():
    """At alpha = 1024 float64 has nothing beside the target; at 128 it has."""
    conv = nn.Conv2d(2, 3, 3, padding=1, stride=2)
    for alpha, least, most in ((1024, 0.0, 0.0), (128, 1e-300, 1e-12), (1, 1e-3, 9.0)):
        assert least <= difference(as_basis(convert(conv, alpha=alpha)), as_basis(conv), (5, 6)) <= most


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
    assert difference(as_basis(back), separable, (5, 6)) < 1e-11
