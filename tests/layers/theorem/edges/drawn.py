"""Properties of Theorem 1's construction on drawn convolutions: the way back, fewest heads, patches."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conv2attn.layers.attention import hard_offsets
from conv2attn.layers.theorem import (
    DepthToSpace,
    SpaceToDepth,
    as_convolution,
    attention_for,
    convolution_of,
    fewest_heads,
    module_of,
    read_convolution,
    tap_matrix,
)
from conv2attn.testing import assert_same, convolutions, images_for
from conv2attn.theory.basis import as_affine_map, as_basis

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")
EXACT = (torch.float32, torch.float64)


@given(convolutions(dtypes=EXACT), st.data())
def test_the_way_back_from_attention_is_the_convolution(conv, data):
    """Its heads' offsets and its basis give a module with the same numbers; sums of whole numbers are exact."""
    layer = attention_for(read_convolution(conv))
    offsets = hard_offsets(layer.operators(), conv.weight.dtype)
    module = module_of(convolution_of(offsets, layer.basis()))
    image = data.draw(images_for(conv, batches=(1, 2)))
    assert torch.equal(module(image), conv(image))


@given(convolutions(dtypes=EXACT), st.data())
def test_a_module_read_and_made_again_is_itself(conv, data):
    image = data.draw(images_for(conv, batches=(1, 2)))
    assert torch.equal(module_of(read_convolution(conv))(image), conv(image))
    assert torch.equal(as_convolution(conv).weight, read_convolution(conv).weight)


@given(convolutions(dimensions=(1, 2), dtypes=(torch.float64,)), st.data())
def test_the_convolution_and_its_attention_are_one_affine_map(conv, data):
    image = data.draw(images_for(conv, extra=1, batches=(1,)))
    matrix, constant = as_affine_map(as_basis(conv), tuple(image.shape[2:]))
    others = as_affine_map(as_basis(attention_for(read_convolution(conv))), tuple(image.shape[2:]))
    assert_same(others[0], matrix)
    assert_same(others[1], constant)


@given(convolutions(dtypes=(torch.float64,)))
def test_fewest_heads_are_the_taps_that_are_not_zero_and_at_least_their_rank(conv):
    taps = tap_matrix(read_convolution(conv))
    fewest, rank = fewest_heads(conv), np.linalg.matrix_rank(taps)
    assert fewest.hard == int((taps != 0).any(1).sum())
    assert rank <= fewest.free <= rank + 1


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=3), st.integers(1, 3))
def test_tokens_of_patches_are_the_image_again(sizes, channels):
    patch, sides = tuple(p for p, _ in sizes), [p * n for p, n in sizes]
    image = torch.randn(2, channels, *sides)
    tokens = SpaceToDepth(patch)(image)
    assert tokens.shape == (2, channels * int(np.prod(patch)), *(n for _, n in sizes))
    assert torch.equal(DepthToSpace(patch)(tokens), image)
    assert torch.equal(tokens.sort(1).values.flatten().sort().values, image.flatten().sort().values)
