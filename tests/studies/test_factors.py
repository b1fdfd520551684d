"""Fig. 11: the factors that are drawn multiply to the map of the layer, and to the nearest convolution."""

import numpy as np
import pytest
import torch

from conv2attn import MultiHeadSelfAttention, convert
from conv2attn.layers.attention import Encoding
from conv2attn.theory.basis import QuadraticSoftmax
from studies.figures import factors_figure, factors_of_layer, nearest_convolution

QUERY, SIDES = (2, 3), (5, 6)


def soft(d_in, d_out, heads):
    torch.manual_seed(0)
    encoding = Encoding(QuadraticSoftmax.of(torch.randn(heads, 2), 0.5))
    return MultiHeadSelfAttention(d_in, d_out, encoding).double()


@pytest.fixture
def layer():
    """A position-only layer of nine soft heads, 2 channels to 3."""
    return soft(2, 3, 9)


def map_at(layer, query=QUERY):
    """V_q by the layer's own derivative: (d_in d_out, keys)."""
    image = torch.zeros(1, 2, *SIDES, dtype=torch.float64)
    slopes = torch.autograd.functional.jacobian(lambda x: layer(x)[0, :, query[0], query[1]], image)[:, 0]
    return slopes.flatten(2).flatten(0, 1).numpy()


@torch.no_grad()
def attention(layer):
    return layer.attention(sides=SIDES)[0, :, QUERY[0] * SIDES[1] + QUERY[1]].unflatten(-1, SIDES).numpy()


def test_the_factors_of_a_layer_multiply_to_its_map(layer):
    factors = factors_of_layer(layer, attention(layer))
    assert factors.weights.shape == (6, 9)
    np.testing.assert_allclose(factors.product, map_at(layer), atol=1e-12)
    assert np.abs(factors.product - map_at(layer, (2, 2))).max() > 1e-3


def test_the_nearest_convolution_is_the_least_squares_one(layer):
    factors = factors_of_layer(layer, attention(layer))
    nearest = nearest_convolution(factors, SIDES, QUERY, 3)
    weights, *_ = np.linalg.lstsq(nearest.rows.T, factors.product.T, rcond=None)
    np.testing.assert_allclose(nearest.weights, weights.T, atol=1e-12)


def test_of_a_converted_convolution_both_products_are_equal():
    conv = convert(torch.nn.Conv2d(2, 3, 3, padding=1).double())
    padded = conv.attention(sides=SIDES)[0, :, QUERY[0] * SIDES[1] + QUERY[1]].unflatten(-1, (7, 8))
    factors = factors_of_layer(conv, padded[:, 1:-1, 1:-1].numpy())
    nearest = nearest_convolution(factors, SIDES, QUERY, 3)
    np.testing.assert_allclose(nearest.product, factors.product, atol=1e-12)


def test_at_a_border_only_neighbours_in_the_image_have_a_row(layer):
    assert nearest_convolution(factors_of_layer(layer, attention(layer)), SIDES, (0, 0), 3).rows.shape == (4, 30)


def test_the_picture_has_both_lines_and_says_what_it_leaves_out(layer):
    figure = factors_figure(layer, attention(layer), QUERY)
    titles = [panel.get_title() for panel in figure.axes]
    assert titles == ["V_conv 6x30", "W_conv 6x9", "E_q 9x30", "V_SA 6x30", "W_SA 6x9", "A_q 9x30"]
    wide = soft(5, 6, 4)
    rows = attention(wide)
    assert "first 24 of 30 rows" in factors_figure(wide, rows, QUERY).axes[0].get_title()
