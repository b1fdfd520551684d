"""Layers that are no convolution of floats by their attributes alone: an error alone, listed inside a network."""

import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from whole import assert_equal, image_of, whole

from conv2attn import MultiHeadSelfAttention, conversion_of, convert
from conv2attn.errors import UnsupportedError

IMAGE = image_of(2, 3, 6, 7)


class Doubling(torch.Tensor):
    """Convolves with twice itself."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result.as_subclass(torch.Tensor) * 2 if func is F.conv2d else result

    def __deepcopy__(self, memo):
        return nn.Parameter(self.detach().clone().as_subclass(Doubling))


def with_its_own(name: str) -> nn.Module:
    conv = whole(nn.Conv2d(3, 3, 3))
    setattr(conv, name, nn.Parameter(getattr(conv, name).detach().as_subclass(Doubling)))
    return conv


def called_in_its_own_way() -> nn.Module:
    conv = whole(nn.Conv2d(3, 3, 3))
    conv._call_impl = lambda image: nn.Module._call_impl(conv, image.flip(-1))
    return conv


class OwnForward(nn.Conv2d):
    def forward(self, image):
        return super().forward(image.flip(-1))


class Flipping(nn.Conv2d):
    """Replaces what nn.Module calls, not its forward."""

    def _call_impl(self, image):
        return super()._call_impl(image.flip(-1))


class Wrapped(nn.Conv2d):
    """Replaces what nn.Module calls first."""

    def _wrapped_call_impl(self, image):
        return super()._wrapped_call_impl(image.flip(-1))


class Twice(nn.Conv2d):
    """Computes its weight, from the parameter of that name, whenever it is read."""

    def __getattr__(self, name):
        value = super().__getattr__(name)
        return 2 * value if name == "weight" else value


class Derived(nn.Conv2d):
    """Computes its weight from a parameter of another name."""

    weight = property(lambda self: self.raw * 2, lambda self, value: self.register_parameter("raw", value))


OWN = {
    "weight": lambda: with_its_own("weight"),
    "bias": lambda: with_its_own("bias"),
    "call of an instance": called_in_its_own_way,
    "call of a class": lambda: whole(Flipping(3, 3, 3)),
    "wrapped call of a class": lambda: whole(Wrapped(3, 3, 3)),
    "forward": lambda: whole(OwnForward(3, 3, 3)),
    "attributes": lambda: whole(Twice(3, 3, 3)),
    "property": lambda: whole(Derived(3, 3, 3)),
}
OTHERS = {
    "complex": (lambda: nn.Conv2d(3, 3, 3, dtype=torch.complex64), "C2A102 "),
    "quantised": (lambda: torch.ao.nn.quantized.Conv2d(3, 3, 3), "C2A102 "),
    "lazy": (lambda: nn.LazyConv2d(3, 3), "C2A103 "),
    "on the meta device": (lambda: nn.Conv2d(3, 3, 3, device="meta"), "C2A103 "),
    "compiled by jit": (lambda: torch.jit.script(nn.Conv2d(3, 3, 3)), "C2A10"),
}
REFUSED = OTHERS | {f"with its own {name}": (make, "C2A106 ") for name, make in OWN.items()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_alone_and_left_inside_a_network(name, training):
    make, reason = REFUSED[name]
    with pytest.raises(UnsupportedError, match=reason):
        convert(make())
    model = nn.Sequential(make(), whole(nn.Conv2d(3, 3, 1))).train(training)
    for example in (None, IMAGE) if name == "compiled by jit" else (None,):
        network = convert(model, example_input=example)
        (row,) = conversion_of(network).remaining
        assert (row.name, row.outcome) == ("0", "unsupported")
        assert re.match(reason, row.reason)
        assert type(network[0]) is type(model[0])
        assert network[0].training == training
        assert isinstance(network[1], MultiHeadSelfAttention)
        if make in OWN.values():
            assert_equal(model, network, IMAGE)


@pytest.mark.parametrize("trainable", [False, True])
def test_a_network_on_the_meta_device_is_refused_as_a_layer_there_is(trainable):
    network = nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3)).to("meta")
    with pytest.raises(UnsupportedError, match="C2A103 Sequential is on the meta device, so it has no weights"):
        convert(network, trainable=trainable)


class CallsWithItsOwn(nn.Module):
    """Calls a convolution as a function with a weight that computes by itself."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(image_of(3, 3, 2, 2).as_subclass(Doubling))

    def forward(self, image):
        return F.conv2d(image, self.weight)


def test_a_call_with_a_weight_that_computes_by_itself_is_left():
    model = nn.Sequential(CallsWithItsOwn(), whole(nn.Conv2d(3, 3, 1)))
    network = convert(model, example_input=IMAGE)
    (row,) = conversion_of(network).remaining
    assert (row.name, row.reason[:7]) == ("0:conv2d", "C2A106 ")
    assert_equal(model, network, IMAGE)
