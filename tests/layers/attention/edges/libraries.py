"""A layer as torch's own multi-head attention: the same map, or a refusal that says why."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

import conv2attn
from conv2attn.errors import EngineError, UnsupportedError, UsageError
from conv2attn.testing import assert_same_output, convolutions, images_for

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


def test_what_has_no_counterpart_is_refused():
    with pytest.raises(UnsupportedError, match="C2A101 attention: only quadratic heads without groups"):
        conv2attn.to_mha(conv2attn.convert(nn.Conv2d(4, 4, 3, groups=2)))
    with pytest.raises(EngineError, match=r"C2A201 attention: positions in torch.float32 are wrong by up to"):
        conv2attn.to_mha(conv2attn.convert(nn.Conv2d(1, 1, 3)), side=100_000)
    with pytest.raises(EngineError, match=r"C2A201 attention: positions in torch.float16 are too coarse"):
        conv2attn.to_mha(conv2attn.convert(nn.Conv2d(1, 1, 3).half()))
    with pytest.raises(UsageError, match="C2A006 layer is of class Linear"):
        conv2attn.to_mha(nn.Linear(2, 2))
    with pytest.raises(UnsupportedError, match=r"C2A101 an object of class Linear is not timm's GPSA"):
        conv2attn.from_gpsa(nn.Linear(2, 2))
