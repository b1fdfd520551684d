"""Code outside a convolution that reads its weight, its padding or its class: with or without an input."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from whole import assert_equal, image_of, whole

from conv2attn import MultiHeadSelfAttention, conversion_of, convert

IMAGE = image_of(2, 3, 8, 9)


class Labelled(nn.Conv2d):
    """Has an attribute of its class, which no attention layer has."""

    label = 3


class Reader(nn.Module):
    """Three convolutions; its `body` is one of the functions below."""

    def __init__(self):
        super().__init__()
        self.conv, self.other = Labelled(3, 3, 3, padding=1), nn.Conv2d(3, 3, 1)
        self.box = nn.ModuleList([nn.Sequential(nn.Conv2d(3, 3, 3, padding=1))])

    def forward(self, image):
        return self.other(self.body(image))


def reader(body) -> nn.Module:
    return whole(type("Reading", (Reader,), {"body": body})())


def by_name(self, image):
    return self.conv(image.to(self.conv.weight.dtype))


def by_a_local_name(self, image):
    conv = self.conv
    return conv(image) + conv.weight.sum()


def in_a_loop(self, image):
    for block in self.box:
        image = block(image) * block[0].weight.sum()
    return image


def of_the_class(self, image):
    return self.conv(image) * self.conv.label


def by_getattr(self, image):
    return self.conv(image) + getattr(self.conv, "weight").sum()  # noqa: B009


def in_a_nested_function(self, image):
    def scaled(tensor):
        return tensor * self.conv.weight.sum()

    return scaled(self.conv(image))


def total_of(conv):
    return conv.weight.sum()


def in_another_function(self, image):
    return self.conv(image) + total_of(self.conv)


def the_padding(self, image):
    return self.conv(F.pad(image, (self.conv.padding[0],) * 4))


def the_class(self, image):
    for step in (self.conv, self.other):
        image = step(image) if isinstance(step, nn.Conv2d) else image
    return image


READS = {
    "by name": (by_name, {"conv"}),
    "by a local name": (by_a_local_name, {"conv", "other", "box.0.0"}),
    "in a loop": (in_a_loop, {"conv", "other", "box.0.0"}),
    "of the class": (of_the_class, {"conv"}),
    "by getattr": (by_getattr, {"conv"}),
    "in a nested function": (in_a_nested_function, {"conv"}),
    "in another function": (in_another_function, {"conv", "other", "box.0.0"}),
    "the padding": (the_padding, {"conv"}),
    "the class": (the_class, {"conv", "other", "box.0.0"}),
}


def in_place(network: nn.Module) -> set[str]:
    return {row.name for row in conversion_of(network).rows if "in place" in row.reason}


@pytest.mark.parametrize("example", [None, IMAGE])
@pytest.mark.parametrize("name", READS)
def test_what_may_be_read_is_converted_in_place(name, example):
    body, expected = READS[name]
    model = reader(body)
    network = convert(model, example_input=example)
    assert in_place(network) == expected
    assert {row.outcome for row in conversion_of(network).rows} == {"converted"}
    for part in expected:
        assert type(network.get_submodule(part)) is type(model.get_submodule(part))
    assert_equal(model, network, IMAGE)


def test_what_only_an_unused_method_reads_is_replaced():
    class Unused(Reader):
        def reset(self):
            nn.init.zeros_(self.conv.weight)

        def body(self, image):
            return self.conv(image)

    assert in_place(convert(whole(Unused()))) == set()


def test_a_hook_that_reads_the_weight_finds_it():
    model, norms = whole(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3))), []
    model[1].register_forward_hook(lambda module, args, result: norms.append(module.weight.norm()))
    for example in (None, IMAGE):
        network = convert(model, example_input=example)
        norms.clear()
        assert_equal(model, network, IMAGE, engines=["auto"])
        assert torch.equal(norms[0], norms[1])
        assert isinstance(network[0], MultiHeadSelfAttention)
