"""A layer as ConViT's gated positional self-attention by timm's class, and back."""

import pytest
import timm.models.convit
import torch
from torch import nn

import conv2attn
from conv2attn.errors import GeometryError, UnsupportedError

CONVOLUTIONS = {
    "padded": (nn.Conv2d(3, 5, 3, padding=1), (7, 7)),
    "strided, dilated": (nn.Conv2d(4, 2, (3, 2), stride=2, padding=(2, 1), dilation=2, bias=False), (6, 8)),
    "transposed": (nn.ConvTranspose2d(3, 2, 3, stride=2), (5, 5)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@torch.no_grad()
def test_timm_attention_computes_the_layer(name):
    conv, sides = CONVOLUTIONS[name]
    theirs = conv2attn.to_gpsa(conv2attn.convert(conv))
    assert type(theirs.attention) is timm.models.convit.GPSA
    torch.manual_seed(0)
    x = torch.randn(2, conv.in_channels, *sides)
    assert torch.allclose(theirs(x), conv(x), atol=1e-5)


@torch.no_grad()
def test_timm_attention_comes_back_as_a_layer():
    conv = nn.Conv2d(4, 4, 3)
    theirs = conv2attn.to_gpsa(conv2attn.convert(conv)).attention
    layer = conv2attn.from_gpsa(theirs)
    x = torch.randn(2, theirs.dim, 6, 6)
    tokens = theirs(x.flatten(2).mT).mT.unflatten(2, (6, 6))
    assert torch.allclose(layer(x), tokens, atol=1e-5)


@torch.no_grad()
def test_trained_gpsa_with_closed_gates_is_a_layer():
    torch.manual_seed(0)
    theirs = timm.models.convit.GPSA(18, 9, qkv_bias=True, locality_strength=1.5)
    theirs.local_init()
    with pytest.raises(UnsupportedError, match=r"C2A101 a head gives content 0\.27 of its attention"):
        conv2attn.from_gpsa(theirs)
    theirs.gating_param.fill_(100.0)
    x = torch.randn(1, 18, 5, 5)
    tokens = theirs(x.flatten(2).mT).mT.unflatten(2, (5, 5))
    assert torch.allclose(conv2attn.from_gpsa(theirs)(x), tokens, atol=1e-5)
    theirs.pos_proj.weight[4, 2] = 0.5
    with pytest.raises(UnsupportedError, match="C2A101 head 4 does not attend less"):
        conv2attn.from_gpsa(theirs)


class Turned(timm.models.convit.GPSA):
    def get_attention(self, x):
        return super().get_attention(x).flip(-1)


CHANGED = {
    "subclass": lambda gpsa: setattr(gpsa, "__class__", Turned),
    "function": lambda gpsa: setattr(gpsa, "get_attention", lambda x: torch.eye(x.shape[1])),
    "hook": lambda gpsa: gpsa.v.register_forward_hook(lambda module, arguments, output: 2 * output),
}


@pytest.mark.parametrize("part", CHANGED)
def test_code_that_is_not_of_the_library_is_not_read_as_its_parameters(part):
    theirs = conv2attn.to_gpsa(conv2attn.convert(nn.Conv2d(4, 4, 3))).attention
    CHANGED[part](theirs)
    with pytest.raises(UnsupportedError, match=r"C2A106 .* so that its parameters do not tell what it computes"):
        conv2attn.from_gpsa(theirs)


def test_unsupported_convits_are_refused():
    layer = conv2attn.convert(nn.Conv2d(8, 8, 3))
    with pytest.raises(UnsupportedError, match=r"C2A101 .*a head of width 4 cannot carry d_head=8"):
        conv2attn.to_gpsa(layer, width=4)
    with pytest.raises(GeometryError, match=r"C2A121 .*square"):
        conv2attn.to_gpsa(layer)(torch.zeros(1, 8, 5, 6))
    for conv in (nn.Conv1d(2, 2, 3), nn.Conv2d(4, 4, 3, groups=2)):
        with pytest.raises(UnsupportedError, match="C2A101"):
            conv2attn.to_gpsa(conv2attn.convert(conv))
