"""Code outside a convolution that reads its weight, its padding, what its class adds, or its class."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from whole import assert_equal, image_of, whole

from conv2attn import certify, conversion_of, convert
from conv2attn.errors import UnsupportedError
from conv2attn.networks import attention_layers
from conv2attn.verdicts import Verdict

IMAGE = image_of(2, 3, 8, 9)


class Labelled(nn.Conv2d):
    """Has an attribute and a method of its class, which no attention layer has."""

    label = 3

    def doubled(self):
        return 2 * self.weight.sum()


class Network(nn.Module):
    """Convolutions alone and in containers."""

    def __init__(self):
        super().__init__()
        self.conv, self.other = Labelled(3, 3, 3, padding=1), nn.Conv2d(3, 3, 1)
        self.box = nn.ModuleList([nn.Sequential(nn.Conv2d(3, 3, 3, padding=1))])


class Reader(Network):
    """Reads of them what torch's convolutions have, what their class adds, and what its methods need."""

    def forward(self, image):
        conv = self.conv
        image = conv(F.pad(image.to(conv.weight.dtype), (conv.padding[0],) * 4)) * conv.label + conv.doubled()
        for block in self.box:
            image = block(image) % 7 * getattr(block[0], "weight").sum()  # noqa: B009
        return self.other(image + conv.in_channels + conv.dilation[0])


@pytest.mark.parametrize("example", [None, IMAGE])
def test_attention_has_the_attributes_of_its_convolution(example):
    model = whole(Reader())
    network = convert(model, example_input=example)
    assert set(attention_layers(network)) == {"conv", "other", "box.0.0"}
    assert_equal(model, network, IMAGE)
    twin = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1)
    assert_equal(model, network, IMAGE)
    assert not torch.equal(twin(IMAGE), network(IMAGE))


class Asking(Network):
    """Skips what is no convolution."""

    def forward(self, image):
        for step in (self.conv, self.other):
            image = step(image) if isinstance(step, nn.Conv2d) else image
        return image


def test_readers_of_the_class_are_named_and_certify_finds_the_difference():
    model = whole(Asking()).eval()
    rows = {row.name: row.reason for row in conversion_of(convert(model, example_input=IMAGE)).rows}
    assert rows["conv"] == rows["other"] == "Asking reads its class, which is not a convolution's"
    assert rows["box.0.0"] == ""
    assert {row.reason for row in conversion_of(convert(model)).rows} == {""}
    assert certify(model, convert(model), images=IMAGE).verdict is not Verdict.HOLDS


class Missing(Network):
    """Asks for what torch's convolutions have and attention has not."""

    def forward(self, image):
        return self.conv._conv_forward(image, self.conv.weight, None)


def test_an_example_shows_readers_of_attributes_that_attention_lacks():
    with pytest.raises(UnsupportedError, match=r"C2A108 conv: the network's own code reads its _conv_forward"):
        convert(whole(Missing()), example_input=IMAGE)
    assert_equal(whole(Missing()), convert(whole(Missing()), example_input=IMAGE, skip="conv"), IMAGE)
