"""A layer as ConViT's gated positional self-attention by timm's class, and back."""

import pytest
import timm.models.convit
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from suite import convolutions, smallest_sides
from torch import nn

import conv2attn
from conv2attn import convert, from_gpsa, to_gpsa
from conv2attn.errors import GeometryError, UnsupportedError
from conv2attn.testing import assert_same_output

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")


@example(nn.ConvTranspose2d(3, 2, 3, stride=2).double(), 3, 0)
@given(convolutions(dimensions=(2,), dtypes=(torch.float64,)), st.integers(0, 2), st.integers(0, 2**16))
@torch.no_grad()
def test_timm_attention_computes_the_layer_and_comes_back(conv, more, seed):
    """On square padded images; what comes back computes the GPSA on all its channels, at every pixel."""
    assume(conv.groups == 1)
    torch.manual_seed(seed)
    for parameter in conv.parameters():
        parameter.normal_()
    layer = convert(conv)
    assume(min(*layer.sites.before, *layer.sites.after) >= 0)
    least, added = smallest_sides(conv), layer.image_padding.sides((1, 1))
    assume(layer.image_padding.spacing[0] == layer.image_padding.spacing[1] == 1)
    side = max(least[0] + added[0], least[1] + added[1]) - 1 + more
    image = torch.randn(2, conv.in_channels, side - added[0] + 1, side - added[1] + 1, dtype=torch.float64)
    theirs, expected = to_gpsa(layer), conv(image)
    assert type(theirs.attention) is timm.models.convit.GPSA
    assert_same_output(theirs(image), expected, 1e-10 * (1 + expected.abs().max().item()))
    whole = torch.randn(1, theirs.attention.dim, 4, 4, dtype=torch.float64)
    tokens = theirs.attention(whole.flatten(2).mT).mT.unflatten(2, (4, 4))
    back = from_gpsa(theirs.attention)
    assert (back.heads, back.d_in) == (theirs.attention.num_heads, theirs.attention.dim)
    assert_same_output(back(whole), tokens, 1e-10 * (1 + tokens.abs().max().item()))


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
