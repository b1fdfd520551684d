"""A layer as torch's own multi-head attention: the same map, or a refusal that says why."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from suite import convolutions, images_for
from torch import nn

import conv2attn
from conv2attn.testing import assert_same_output

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")


@given(convolutions(dtypes=(torch.float64,)), st.sampled_from(["queries", "pooling"]), st.data())
@torch.no_grad()
def test_torch_attention_computes_the_layer(conv, stride_by, data):
    """Of weights with all bits of float64: they passed through float32 before."""
    assume(conv.groups == 1)
    torch.manual_seed(0)
    image = torch.randn_like(data.draw(images_for(conv, batches=(1, 2))))
    for parameter in conv.parameters():
        parameter.normal_()
    layer, expected = conv2attn.convert(conv, stride_by=stride_by), conv(image)
    theirs = conv2attn.to_mha(layer)
    assert type(theirs.attention) is nn.MultiheadAttention
    assert_same_output(theirs(image), expected, 1e-10 * (1 + expected.abs().max().item()))
