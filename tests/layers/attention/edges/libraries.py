"""A layer as torch's own multi-head attention, and back: the same map, or a refusal that says why."""

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.errors import EngineError, UnsupportedError
from conv2attn.layers.attention import Encoding, MultiHeadSelfAttention

CONVOLUTIONS = {
    "strided": (nn.Conv2d(3, 5, 3, stride=2, padding=1), {}),
    "strided by pooling": (nn.Conv2d(2, 3, 3, stride=2, padding=1), {"stride_by": "pooling"}),
    "reflected, dilated": (
        nn.Conv2d(4, 2, (3, 5), padding=(1, 4), dilation=(1, 2), padding_mode="reflect", bias=False),
        {},
    ),
    "one axis": (nn.Conv1d(2, 40, 4, padding=2), {}),
    "three axes": (nn.Conv3d(1, 2, 2), {}),
    "transposed": (nn.ConvTranspose2d(3, 2, 3, stride=2), {}),
    "as many channels as numbers of a position": (nn.Conv2d(3, 3, 1), {}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@torch.no_grad()
def test_torch_attention_computes_the_layer_and_comes_back(name):
    """Planted in the end: one head reads another pixel."""
    torch.manual_seed(0)
    conv, options = CONVOLUTIONS[name]
    conv = conv.double()
    image = torch.randn(2, conv.in_channels, *(9, 7, 5)[: conv.weight.ndim - 2], dtype=torch.float64)
    layer = conv2attn.convert(conv, **options)
    theirs = conv2attn.to_mha(layer)
    assert type(theirs.attention) is nn.MultiheadAttention
    torch.testing.assert_close(theirs(image), conv(image), rtol=1e-10, atol=1e-10)
    back = conv2attn.from_mha(theirs)
    torch.testing.assert_close(back(image), conv(image), rtol=1e-10, atol=1e-10)
    assert torch.equal(back.encoding.center, layer.encoding.center)
    theirs.attention.register_forward_hook(lambda module, arguments, output: None)
    with pytest.raises(UnsupportedError, match="C2A106 MultiheadAttention has hooks"):
        conv2attn.from_mha(theirs)
    layer.encoding.center[0, 0] += 1
    assert not torch.allclose(conv2attn.to_mha(layer)(image), conv(image), atol=1e-3)


@torch.no_grad()
def test_trained_positions_come_back_as_they_are():
    layer = MultiHeadSelfAttention(3, 4, Encoding.of("quadratic", [[0.3, -1.2], [2.0, 0.1]], [0.5, 2.0])).double()
    image = torch.randn(2, 3, 6, 7, dtype=torch.float64)
    theirs = conv2attn.to_mha(layer, side=9)
    for each in (theirs, conv2attn.from_mha(theirs)):
        torch.testing.assert_close(each(image), layer(image), rtol=1e-9, atol=1e-9)


SPOILT = {
    "anisotropic": lambda attention: attention.q_proj_weight[0, 0].mul_(1.5),
    "sign": lambda attention: attention.q_proj_weight.mul_(-1),
    "bias": lambda attention: attention.in_proj_bias[1].fill_(0.5),
}


@pytest.mark.parametrize("part", SPOILT)
@torch.no_grad()
def test_what_is_no_quadratic_head_is_refused(part):
    theirs = conv2attn.to_mha(conv2attn.convert(nn.Conv2d(2, 3, 3, padding=1)))
    SPOILT[part](theirs.attention)
    with pytest.raises(UnsupportedError, match=r"C2A101 .*is not a quadratic head"):
        conv2attn.from_mha(theirs)


def test_what_has_no_counterpart_is_refused():
    with pytest.raises(UnsupportedError, match="C2A101 attention: only quadratic heads without groups"):
        conv2attn.to_mha(conv2attn.convert(nn.Conv2d(4, 4, 3, groups=2)))
    with pytest.raises(EngineError, match=r"C2A201 attention: positions in torch.float32 are wrong by up to"):
        conv2attn.to_mha(conv2attn.convert(nn.Conv2d(1, 1, 3)), side=100_000)
    with pytest.raises(UnsupportedError, match=r"C2A101 .* of class MultiheadAttention is not"):
        conv2attn.from_mha(nn.MultiheadAttention(4, 2))
    with pytest.raises(UnsupportedError, match=r"C2A101 an object of class Linear is not timm's GPSA"):
        conv2attn.from_gpsa(nn.Linear(2, 2))
