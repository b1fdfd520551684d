"""Attention that reads content, as one fused attention: the formula's numbers and gradients, and no tensor of pairs."""

import pytest
import torch
from hypothesis import given
from layers.attention.drawing import SUMS, encoding_for, layers
from torch.utils._python_dispatch import TorchDispatchMode

from conv2attn.errors import EngineError
from conv2attn.layers.attention import MultiHeadSelfAttention, set_engine
from conv2attn.testing import assert_same_output

FAMILIES = ("quadratic", "generalised", "learned", "sinusoidal")


@given(layers(FAMILIES, SUMS, longest=3))
def test_no_images_have_no_outputs_and_no_gradients(drawn):
    layer, image = drawn
    for engine in ("auto", "dense", "sdpa"):
        result = set_engine(layer, engine)(image[:0].clone().requires_grad_())
        assert result.shape == (0, *layer(image).shape[1:])
        for gradient in torch.autograd.grad(
            result.sum(), list(layer.parameters()), materialize_grads=True, allow_unused=True
        ):
            assert not gradient.any()


class NoPairs(TorchDispatchMode):
    """Refuses tensors of as many numbers as there are pairs of a query and a key in all heads."""

    def __init__(self, pairs):
        super().__init__()
        self.pairs = pairs

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for each in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(each, torch.Tensor):
                assert each.numel() < self.pairs, f"{function}: {tuple(each.shape)}"
        return result


def plane(family, terms, side, alpha=0.05, heads=2):
    """A layer on a square grid in float32."""
    encoding = encoding_for(family, heads, (side, side), torch.Generator().manual_seed(0), alpha).float()
    torch.manual_seed(0)
    layer = MultiHeadSelfAttention(3, 3, encoding, d_key=8, terms=terms, affine=True)
    layer.query.data *= 0.05
    return layer


@pytest.mark.parametrize("terms", ["qk", "qr", "qk+qr", "qk+qr+uk+vr"])
@pytest.mark.parametrize("family", FAMILIES)
def test_no_tensor_has_a_number_for_each_pair(family, terms):
    side, heads = 16, 2
    layer, image = plane(family, terms, side, 0.01), torch.randn(1, 3, side, side)
    image *= 0.1
    assert layer.which_engine(image) == "sdpa"
    layer(image)
    with NoPairs(heads * side**4):
        layer(image).sum().backward()
    with pytest.raises(AssertionError, match="aten"), NoPairs(heads * side**4):
        set_engine(layer, "dense")(image)


def test_heads_too_sharp_for_few_features_are_scored_axis_by_axis():
    """In float32, for this image and these parameters as they are now; scores near the largest are then small."""
    layer, image = plane("quadratic", "qk+qr+vr", 12), 0.1 * torch.randn(1, 3, 12, 12)
    layer(image)
    layer.encoding.assign(alpha=40.0)
    exact = set_engine(plane("quadratic", "qk+qr+vr", 12).double(), "dense")
    exact.load_state_dict(layer.state_dict())
    with torch.no_grad():
        assert_same_output(set_engine(layer, "sdpa")(image).double(), exact(image.double()), 1e-5)
    general = plane("generalised", "qk+vr", 12, alpha=20.0)
    assert general.which_engine(0 * image) == "dense"
    with pytest.raises(
        EngineError, match="its positions have no accurate features on this grid, and its scores are not a sum"
    ):
        set_engine(general, "sdpa")(0 * image)


@pytest.mark.parametrize("family", ["quadratic", "generalised"])
def test_few_features_are_chosen_by_the_image_too(family):
    layer, image = plane(family, "qk+qr+vr", 12), 0.1 * torch.randn(1, 3, 12, 12)
    for factor, few in ((1.0, True), (1e5, False), (1.0, True), (float("nan"), False)):
        assert layer.question(layer.basis(), factor * image).few_features is few


@given(layers(("quadratic", "generalised"), tuple(terms for terms in SUMS if "r" in terms)))
def test_the_part_of_positions_is_within_its_numbers(drawn):
    """Sums of the absolute values of their products of features, which the bound on rounding takes from the numbers."""
    layer, image = drawn
    operators, padded = layer.basis().operators, layer.image_padding.pad(image)
    grid = layer.question(layer.basis(), image).grid
    numbers = operators.numbers_on(padded)
    largest = max(1.0, max(grid.keys) / 2 + numbers.reach)
    with torch.no_grad():
        queries, keys = (side[-1].abs() for side in operators.content_features(grid, torch.float64, padded, False))
    total = (queries @ keys.mT).max().item()
    assert total <= 3 * len(grid.keys) * numbers.sharpness * largest**2 * (1 + 1e-12)
