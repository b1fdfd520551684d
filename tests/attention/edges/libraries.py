"""A layer as torch's own multi-head attention, and back: the same map, or a refusal that says why."""

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.errors import EngineError, UnsupportedError

LAYERS = {
    "strided": nn.Conv2d(3, 5, 3, stride=2, padding=1),
    "reflected, dilated": nn.Conv2d(4, 2, (3, 5), padding=(1, 4), dilation=(1, 2), padding_mode="reflect", bias=False),
    "one axis": nn.Conv1d(2, 3, 4, padding=2),
    "three axes": nn.Conv3d(1, 2, 2),
    "transposed": nn.ConvTranspose2d(3, 2, 3, stride=2),
}


def image(conv):
    torch.manual_seed(0)
    return torch.randn(2, conv.in_channels, *(9, 7, 5)[: conv.weight.ndim - 2])


@pytest.mark.parametrize("name", LAYERS)
@torch.no_grad()
def test_torch_attention_computes_the_layer_and_comes_back(name):
    conv = LAYERS[name]
    layer = conv2attn.convert(conv)
    theirs = conv2attn.to_mha(layer)
    assert type(theirs.attention) is nn.MultiheadAttention
    assert torch.allclose(theirs(image(conv)), conv(image(conv)), atol=1e-5)
    back = conv2attn.from_mha(theirs)
    assert torch.allclose(back(image(conv)), conv(image(conv)), atol=1e-5)
    assert torch.equal(back.encoding.center, layer.encoding.center)


@torch.no_grad()
def test_strides_by_pooling_are_taken():
    conv = nn.Conv2d(2, 3, 3, stride=2, padding=1)
    theirs = conv2attn.to_mha(conv2attn.convert(conv, stride_by="pooling"))
    assert torch.allclose(theirs(image(conv)), conv(image(conv)), atol=1e-5)


@torch.no_grad()
def test_trained_positions_come_back_as_they_are():
    layer = conv2attn.convert(nn.Conv2d(2, 3, 3, padding=1), alpha=2.0)
    layer.encoding.center.add_(0.3 * torch.randn(9, 2))
    layer.encoding.alpha.mul_(torch.rand(9) + 0.5)
    x = torch.randn(1, 2, 6, 7)
    back = conv2attn.from_mha(conv2attn.to_mha(layer, side=9))
    assert torch.allclose(back(x), layer(x), atol=1e-5)


def spoil(part):
    """An attention of torch one of whose parts is no longer that of positions."""
    theirs = conv2attn.to_mha(conv2attn.convert(nn.Conv2d(2, 3, 3, padding=1)))
    attention = theirs.attention
    with torch.no_grad():
        match part:
            case "anisotropic":
                attention.q_proj_weight[0, 0] *= 1.5
            case "sign":
                attention.q_proj_weight *= -1
            case "bias":
                attention.in_proj_bias[1] = 0.5
    return theirs


@pytest.mark.parametrize("part", ["anisotropic", "sign", "bias"])
def test_what_is_no_quadratic_head_is_refused(part):
    with pytest.raises(UnsupportedError, match=r"C2A101 .*is not a quadratic head"):
        conv2attn.from_mha(spoil(part))


def test_what_torch_attention_cannot_be_is_refused():
    with pytest.raises(UnsupportedError, match="C2A101"):
        conv2attn.to_mha(conv2attn.convert(nn.Conv2d(4, 4, 3, groups=2)))
    with pytest.raises(EngineError, match="C2A201"):
        conv2attn.to_mha(conv2attn.convert(nn.Conv2d(2, 2, 3)), side=1 << 18)


def test_attention_that_reads_no_positions_is_refused():
    with pytest.raises(UnsupportedError, match="C2A101 a MultiheadAttention is not attention on positions"):
        conv2attn.from_mha(nn.MultiheadAttention(4, 2))
    with pytest.raises(UnsupportedError, match=r"C2A101 a Linear is not timm's GPSA"):
        conv2attn.from_gpsa(nn.Linear(2, 2))
