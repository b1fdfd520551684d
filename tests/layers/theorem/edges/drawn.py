"""Properties of Theorem 1's construction on drawn convolutions: the way back, fewest heads."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from suite import convolutions, images_for

from conv2attn.layers.attention import hard_offsets
from conv2attn.layers.theorem import (
    as_convolution,
    attention_for,
    combinations,
    convolution_of,
    has_own_forward,
    module_of,
    read_convolution,
    tap_matrix,
)
from conv2attn.testing import assert_same_output

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")


@given(convolutions(dtypes=(torch.float32, torch.float64)))
def test_the_way_back_from_attention_is_the_convolution(conv):
    """Its heads' offsets and its basis have the numbers of the convolution, tap by tap."""
    layer, kernel = attention_for(read_convolution(conv)), as_convolution(conv)
    found = convolution_of(hard_offsets(layer.operators(), conv.weight.dtype), layer.basis())
    assert torch.equal(found.weight, kernel.weight)
    assert np.array_equal(tap_matrix(found), kernel.weight.flatten(2).flatten(0, 1).T.double().numpy())


@torch.no_grad()
@given(st.data(), convolutions(dtypes=(torch.float64,)))
def test_the_module_of_a_convolution_computes_it(data, conv):
    image, other = torch.randn_like(data.draw(images_for(conv, batches=[1]))), deepcopy(conv)
    other.weight.mul_(-2)
    # Two of one geometry, so that the answer for another convolution differs in its numbers and not in its shape.
    for each in (conv, other):
        assert_same_output(module_of(read_convolution(each))(image), each(image), 1e-9)


@given(st.integers(0, 4), st.integers(1, 4), st.integers(-60, 60), st.integers(0, 2**16))
def test_combinations_are_columns_that_span_the_taps(rank, pairs, power, seed):
    """As many as the rank, of entries whose largest is between 1/2 and 1; of taps of any size."""
    generator = torch.Generator().manual_seed(seed)
    left, right = (torch.randint(-3, 4, (4, n), generator=generator).double().numpy() for n in (rank, pairs))
    matrix = np.ldexp(left @ right[:rank], power)
    found = combinations(matrix, 2.0**-53)
    assert found.shape == (4, np.linalg.matrix_rank(np.ldexp(matrix, -power)))
    largest = np.abs(found).max(0, initial=0.5)
    assert ((largest >= 0.5) & (largest < 1)).all()
    scaled = {tuple(column / np.abs(column).max()) for column in matrix.T if column.any()}
    assert {tuple(column / np.abs(column).max()) for column in found.T} <= scaled
    rest = matrix - found @ np.linalg.lstsq(found, matrix, rcond=None)[0] if found.size else matrix
    assert np.abs(rest).max(initial=0.0) <= 1e-12 * np.abs(matrix).max(initial=0.0)


OWN = ("forward", "_conv_forward", "_output_padding", "_call_impl")


@given(convolutions())
def test_a_forward_is_one_s_own_where_an_object_or_its_class_replaced_a_part_of_it(conv):
    kind = type(conv)
    for part in OWN:
        vars(conv)[part] = lambda *args: args[0]
        assert has_own_forward(conv)
        del vars(conv)[part]
        for replaced in (part, f"another_{part}"):
            conv.__class__ = type("Named", (kind,), {replaced: lambda self, *args: args[0]})
            assert has_own_forward(conv) is (replaced in OWN)
        conv.__class__ = kind
    assert not has_own_forward(conv)
