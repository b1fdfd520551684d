"""Which engine serves one-hot heads: what `auto` takes."""

import pytest
import torch
from oracles import convolve
from torch import nn

from conv2attn import convert
from conv2attn.layers.attention import recipe, set_engine
from conv2attn.testing import assert_same_output

TRANSPOSED = {
    "plain": nn.ConvTranspose2d(2, 3, 3, stride=2),
    "padded": nn.ConvTranspose2d(4, 2, (3, 4), stride=(2, 3), padding=(1, 2), output_padding=(1, 0), groups=2),
    "dilated": nn.ConvTranspose1d(2, 2, 3, stride=2, dilation=2, padding=3, output_padding=1),
    "in three axes": nn.ConvTranspose3d(2, 2, 2, stride=2),
}


def integers_for(conv):
    """Small whole numbers as the weights of `conv`, and as an image."""
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(torch.randint(-3, 4, parameter.shape))
    return torch.randint(-3, 4, (2, conv.in_channels, *(5, 4, 6)[: len(conv.kernel_size)])).float()


@pytest.mark.parametrize("name", TRANSPOSED)
def test_a_transposed_convolution_is_computed_as_one(name, monkeypatch):
    """No zeros are stuffed into the image, and the output is torch's bit for bit."""
    conv, given = TRANSPOSED[name], []
    image, right = integers_for(conv), torch.convolution
    monkeypatch.setattr(torch, "convolution", lambda *args: given.append(args) or right(*args))
    layer = set_engine(convert(conv), "conv")
    assert_same_output(layer(image).detach(), convolve(conv, image, torch.float32))
    assert [(args[0].shape, args[6]) for args in given[-1:]] == [(image.shape, True)]


@pytest.mark.parametrize("reason", [None, "this device may choose Winograd's algorithm"])
def test_auto_makes_the_convolution_s_call_whatever_algorithm_the_device_chooses(reason, monkeypatch):
    monkeypatch.setattr(recipe, "indirect_convolution", lambda image: reason)
    conv = nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect")
    layer, image, given = convert(conv), torch.randn(2, 3, 9, 8), []
    right = torch.convolution
    monkeypatch.setattr(torch, "convolution", lambda *args: given.append(args) or right(*args))
    assert layer.which_engine(image) == "conv"
    assert torch.equal(layer(image), conv(image))
    padded = nn.functional.pad(image, (1, 1, 1, 1), mode="reflect")
    (call,) = given
    assert torch.equal(call[0], padded)
    assert call[1] is layer.weight
    assert call[3:] == ((1, 1), (0, 0), (1, 1), False, (0, 0), 1)


FASTER = {(256, 4, 1): "dense", (256, 7, 8): "dense", (256, 10, 1): "dense", (64, 14, 1): "separable"}
"""Channels, side and batch, and what was faster for nine trained heads on a CPU: docs/engines.md has the ratios."""


def engine_of_trained_heads(channels, side, batch):
    """What `auto` takes for a 3x3 layer whose heads are trained."""
    layer = set_engine(convert(nn.Conv2d(channels, channels, 3, padding=1), alpha=5.0, trainable=True), "auto")
    return layer.recipe(layer.basis(), torch.zeros(batch, channels, side, side)).engine


@pytest.mark.parametrize("case", FASTER)
def test_auto_takes_what_was_measured_to_be_faster_for_trained_heads(case):
    assert engine_of_trained_heads(*case) == FASTER[case]
