"""A converted layer as torch.nn.MultiheadAttention."""

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.attention import MultiHeadSelfAttention, QuadraticEncoding
from conv2attn.errors import EngineError, UnsupportedError

CONVOLUTIONS = [
    lambda: nn.Conv2d(3, 5, 3, padding=1, stride=2),
    lambda: nn.Conv2d(6, 4, (2, 3), dilation=2, padding=2, padding_mode="reflect", bias=False),
    lambda: nn.Conv1d(2, 40, 1),
    lambda: nn.ConvTranspose2d(2, 3, 3, stride=2),
    lambda: nn.Conv3d(2, 2, 2),
]


@pytest.mark.parametrize("make", CONVOLUTIONS)
@torch.no_grad()
def test_the_attention_of_torch_is_the_convolution(make):
    conv = make().double()
    plain = conv2attn.to_mha(conv2attn.convert(conv))
    assert isinstance(plain.attention, nn.MultiheadAttention)
    image = torch.randn(2, conv.in_channels, *(7, 8, 5)[: len(conv.kernel_size)], dtype=torch.float64)
    torch.testing.assert_close(plain(image), conv(image), rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_the_attention_of_torch_is_the_soft_layer():
    layer = MultiHeadSelfAttention(3, 4, QuadraticEncoding([[0.3, -1.2], [2.0, 0.1]], [0.5, 2.0])).double()
    image = torch.randn(2, 3, 6, 7, dtype=torch.float64)
    torch.testing.assert_close(conv2attn.to_mha(layer)(image), layer(image), rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_a_moved_centre_is_seen():
    """Planted: one head reads another pixel."""
    conv = nn.Conv2d(2, 3, 3, padding=1).double()
    layer = conv2attn.convert(conv)
    layer.encoding.center[0, 0] += 1
    image = torch.randn(1, 2, 6, 6, dtype=torch.float64)
    assert not torch.allclose(conv2attn.to_mha(layer)(image), conv(image), atol=1e-3)


def test_what_torch_s_attention_cannot_be_is_refused():
    with pytest.raises(UnsupportedError, match="C2A101 attention: only quadratic heads without groups"):
        conv2attn.to_mha(conv2attn.convert(nn.Conv2d(4, 4, 3, groups=2)))
    with pytest.raises(EngineError, match=r"C2A201 attention: positions in torch.float32 are wrong by up to"):
        conv2attn.to_mha(conv2attn.convert(nn.Conv2d(1, 1, 3)), side=100_000)
