"""Convolution layers whose attributes do not tell what they compute, and code that looks into them."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from whole import assert_equal, image_of, whole

from conv2attn import MultiHeadSelfAttention, conversion_of, convert
from conv2attn.models import attention_layers

IMAGE = image_of(2, 3, 8, 9)


class StaticSame(nn.Conv2d):
    """Pads more behind than in front."""

    def forward(self, image):
        return self._conv_forward(F.pad(image, (0, 1, 1, 2)), self.weight, self.bias)


class DynamicSame(nn.Conv2d):
    """Pads by an amount that depends on the input's size, as TensorFlow does."""

    def forward(self, image):
        amounts = []
        for side, k, s in zip(image.shape[:1:-1], self.kernel_size[::-1], self.stride[::-1], strict=True):
            total = max((math.ceil(side / s) - 1) * s + k - side, 0)
            amounts += [total // 2, total - total // 2]
        return F.conv2d(F.pad(image, amounts), self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


class PaddingInTheCall(nn.Conv2d):
    """Chooses the convolution's own padding by the input's size."""

    def forward(self, image):
        return F.conv2d(image, self.weight, self.bias, padding=image.shape[-1] % 4)


class Standardised(nn.Conv2d):
    """Takes the mean out of its weight at each call."""

    def forward(self, image):
        weight = self.weight - self.weight.sum((1, 2, 3), keepdim=True)
        return F.conv2d(image, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Gated(nn.Conv2d):
    """Changes only the inner step of nn.Conv2d."""

    def _conv_forward(self, input, weight, bias):
        return super()._conv_forward(input, weight * 2, bias)


class Upsampled(nn.ConvTranspose2d):
    """Crops what a transposed convolution gives."""

    def forward(self, image):
        return super().forward(image, output_size=[2 * side + 2 for side in image.shape[2:]])[..., 1:, 1:]


OWN = {
    "static same": lambda: StaticSame(3, 4, 4),
    "dynamic same": lambda: DynamicSame(3, 4, 4, stride=3),
    "padding in the call": lambda: PaddingInTheCall(3, 4, 3),
    "standardised": lambda: Standardised(3, 6, 3, padding=1, groups=3),
    "inner step": lambda: Gated(3, 2, 3, padding=1, padding_mode="reflect"),
    "transposed": lambda: Upsampled(3, 4, 3, stride=2),
}


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", OWN)
def test_a_forward_of_its_own_is_converted_as_it_runs(name, inside):
    model = whole(nn.Sequential(OWN[name](), nn.ReLU()) if inside else OWN[name]())
    network = convert(model, example_input=IMAGE)
    assert type(network) is type(model)
    (row,) = conversion_of(network).rows
    assert row.outcome == "converted"
    assert len(attention_layers(network)) == 1
    assert_equal(model, network, IMAGE)
    for sides in ((11, 13), (10, 14)):
        assert_equal(model, network, image_of(2, 3, *sides))
    network(IMAGE).sum().backward()
    model(IMAGE).sum().backward()
    for key, parameter in model.named_parameters():
        assert torch.equal(network.get_parameter(key).grad, parameter.grad)


@pytest.mark.parametrize("name", OWN)
def test_without_an_example_it_is_listed_and_left(name):
    model = whole(nn.Sequential(OWN[name](), nn.Conv2d(3, 3, 1)))
    network = convert(model)
    (row,) = conversion_of(network).remaining
    assert (row.name, row.outcome) == ("0", "unsupported")
    assert "C2A106" in row.reason
    assert torch.equal(network[0](IMAGE), model[0](IMAGE))
    assert not attention_layers(network[0])


def test_a_subclass_that_only_adds_to_it_is_a_convolution():
    class Square(nn.Conv2d):
        def __init__(self, width):
            super().__init__(width, width, 3, padding=1)
            self.label = "square"

        def area(self):
            return 9

    model = whole(nn.Sequential(Square(3)))
    network = convert(model)
    assert isinstance(network[0], MultiHeadSelfAttention)
    assert_equal(model, network, IMAGE)


def test_code_that_reads_the_added_attribute_finds_it():
    class Labelled(nn.Conv2d):
        label = 3

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = Labelled(3, 3, 3)

        def forward(self, image):
            return self.conv(image) * self.conv.label

    model = whole(Network())
    network = convert(model, example_input=IMAGE)
    assert "the network's own code reads it" in conversion_of(network).rows[0].reason
    assert_equal(model, network, IMAGE)


def test_code_that_asks_for_the_class_gets_it():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.steps = nn.ModuleList([nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3)])

        def forward(self, image):
            for step in self.steps:
                image = step(image) if isinstance(step, nn.Conv2d) else image
            return image

    model = whole(Network())
    network = convert(model, example_input=IMAGE)
    assert {row.reason for row in conversion_of(network).rows} == {
        "in place, because the network's own code asks for its class"
    }
    assert_equal(model, network, IMAGE)


def test_an_instance_with_a_forward_of_its_own_is_not_taken_by_its_attributes():
    model = whole(nn.Sequential(nn.Conv2d(3, 3, 3)))
    model[0].forward = lambda image: F.conv2d(image, torch.ones(2, 3, 2, 2))
    assert "C2A106" in conversion_of(convert(model)).rows[0].reason
    network = convert(model, example_input=IMAGE)
    assert [row.signature for row in conversion_of(network).rows] == ["conv2d 3->2 k2"]
    assert_equal(model, network, IMAGE)
