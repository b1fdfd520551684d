"""Patch tokens: bit-equal to the convolution on whole numbers, with as many heads as the formula says."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

import conv2attn
from conv2attn.errors import UnsupportedError
from conv2attn.layers.theorem import DepthToSpace, SpaceToDepth, as_patches, module_of, read_convolution
from conv2attn.verdicts import Strength, Verdict

KINDS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def whole(*shape):
    """Whole numbers, so that every sum is exact."""
    return torch.randint(-4, 5, shape).float()


@st.composite
def patched_convolutions(draw):
    """A convolution that maps whole patches to whole patches, the patch, and the sides of an image."""
    axes = draw(st.integers(1, 3))
    several = st.integers(1, 3 if axes < 3 else 2)
    stride, tokens = ([draw(several) for _ in range(axes)] for _ in range(2))
    patch = [s * draw(several) for s in stride]
    kernel = [draw(st.integers(1, 6 if axes < 3 else 3)) for _ in range(axes)]
    dilation = [draw(st.integers(1, 2)) for _ in range(axes)]
    spans = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    mode = draw(st.sampled_from(["zeros", "circular"]))
    sides = [p * t for p, t in zip(patch, tokens, strict=True)]
    padding = [draw(st.sampled_from(fits(span, s))) for span, s in zip(spans, stride, strict=True)]
    if mode == "circular" and any(p > side for p, side in zip(padding, sides, strict=True)):
        mode = "zeros"
    groups = draw(st.integers(1, 2))
    conv = KINDS[axes](
        2 * groups, groups, kernel, stride, padding, dilation, groups, draw(st.booleans()), padding_mode=mode
    )
    torch.manual_seed(draw(st.integers(0, 99)))
    conv.weight.data = whole(*conv.weight.shape)
    if conv.bias is not None:
        conv.bias.data = whole(*conv.bias.shape)
    return conv, patch, whole(2, conv.in_channels, *sides)


def fits(span, stride):
    """Paddings on either side that keep whole patches whole; 0 where there is none, which is refused then."""
    return [p for p in range(span + 1) if span - stride < 2 * p <= span] or [0]


@settings(max_examples=60)
@given(patched_convolutions())
@torch.no_grad()
def test_attention_on_patches_is_the_convolution_bit_for_bit(drawn):
    conv, patch, image = drawn
    spans = [d * (k - 1) for d, k in zip(conv.dilation, conv.kernel_size, strict=True)]
    if any(not s - t < 2 * p <= s for s, t, p in zip(spans, conv.stride, conv.padding, strict=True)):
        with pytest.raises(UnsupportedError, match="C2A111"):
            conv2attn.convert(conv, patch=patch)
        return
    layer = conv2attn.convert(conv, patch=patch)
    assert torch.equal(layer(image), conv(image))
    back = [p // s for p, s in zip(patch, conv.stride, strict=True)]
    assert torch.equal(DepthToSpace(back)(SpaceToDepth(back)(conv(image))), conv(image))


@given(st.sampled_from([1, 3, 5, 7, 9]), st.integers(1, 8), st.integers(1, 3), st.integers(0, 2**16))
@torch.no_grad()
def test_a_convolution_on_tokens_has_as_many_heads_as_the_formula_says(kernel, patch, d_out, seed):
    """`2 ceil((K - 1) / (2 patch)) + 1` along each axis."""
    torch.manual_seed(seed)
    conv, image = nn.Conv1d(2, d_out, kernel, padding=kernel // 2), whole(2, 2, 3 * patch)
    conv.weight.copy_(whole(*conv.weight.shape)), conv.bias.copy_(whole(d_out))
    tokens, outputs = as_patches(read_convolution(conv), (patch,))
    heads = 2 * math.ceil((kernel - 1) / (2 * patch)) + 1
    assert tokens.kernel_size == (heads,)
    assert outputs == (patch,)
    found = DepthToSpace(outputs)(module_of(tokens)(SpaceToDepth((patch,))(image)))
    assert torch.equal(found, conv(image))


@pytest.mark.filterwarnings("ignore:Using padding")
def test_patch_tokens_are_one_formula():
    for layer, patch in ((nn.Conv2d(2, 3, 3, 2, 1), 4), (nn.Conv1d(1, 2, 2, padding="same"), 3)):
        size = (1, 12) if isinstance(layer, nn.Conv1d) else (2, 8, 16)
        certificate = conv2attn.certify(layer, conv2attn.convert(layer, patch=patch), input_size=size)
        assert certificate.verdict is Verdict.HOLDS, certificate.to_text()
        assert certificate.strength is Strength.IDENTIFIED


@torch.no_grad()
@pytest.mark.parametrize("planted", ["tap", "phase", "patch"])
def test_wrong_patch_tokens_are_not_certified(planted):
    torch.manual_seed(0)
    conv = nn.Conv2d(2, 3, 3, padding=1)
    converted = conv2attn.convert(conv, patch=2)
    layer = converted[1]
    match planted:
        case "tap":
            layer.weight[0, 0, 1, 1] += 1e-3
        case "phase":
            layer.weight.copy_(layer.weight[[1, 0, *range(2, len(layer.weight))]])
        case "patch":
            converted[2] = DepthToSpace((4, 1))
    assert conv2attn.certify(conv, converted, input_size=(2, 8, 8)).verdict is not Verdict.HOLDS


@pytest.mark.parametrize("way", ["a call", "a hook on all"])
def test_code_around_a_layer_is_not_read_away_with_its_patch_tokens(way):
    network = nn.Conv2d(2, 3, 3, 2, 1)
    converted = conv2attn.convert(network, patch=4)
    hook = None
    if way == "a call":
        network._call_impl = lambda image: 2 * nn.Conv2d.forward(network, image)
    else:
        hook = register_module_forward_hook(lambda module, _, output: 2 * output if module is network else output)
    try:
        assert conv2attn.certify(network, converted, input_size=(2, 8, 16)).verdict is not Verdict.HOLDS
    finally:
        if hook is not None:
            hook.remove()
