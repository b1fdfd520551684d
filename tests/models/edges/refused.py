"""Convolutions that compute something else than their attributes say are not read by them."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from whole import assert_equal, image_of, whole

from conv2attn import conversion_of, convert
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


def with_a_weight_of_its_own() -> nn.Module:
    conv = whole(nn.Conv2d(3, 3, 3))
    conv.weight = nn.Parameter(conv.weight.detach().as_subclass(Doubling))
    return conv


def with_a_bias_of_its_own() -> nn.Module:
    conv = whole(nn.Conv2d(3, 3, 3))
    conv.bias = nn.Parameter(conv.bias.detach().as_subclass(Doubling))
    return conv


def called_in_its_own_way() -> nn.Module:
    conv = whole(nn.Conv2d(3, 3, 3))
    conv._call_impl = lambda image: nn.Module._call_impl(conv, image.flip(-1))
    return conv


class Flipping(nn.Conv2d):
    """Replaces what nn.Module calls, not its forward."""

    def _call_impl(self, image):
        return super()._call_impl(image.flip(-1))


class Wrapped(nn.Conv2d):
    """Replaces what nn.Module calls first."""

    def _wrapped_call_impl(self, image):
        return super()._wrapped_call_impl(image.flip(-1))


OWN = {
    "weight": with_a_weight_of_its_own,
    "bias": with_a_bias_of_its_own,
    "call of an instance": called_in_its_own_way,
    "call of a class": lambda: whole(Flipping(3, 3, 3)),
    "wrapped call of a class": lambda: whole(Wrapped(3, 3, 3)),
}


@pytest.mark.parametrize("name", OWN)
def test_it_is_refused_alone_and_left_inside_a_network(name):
    with pytest.raises(UnsupportedError, match="C2A106"):
        convert(OWN[name]())
    model = nn.Sequential(OWN[name](), whole(nn.Conv2d(3, 3, 1)))
    network = convert(model)
    (row,) = conversion_of(network).remaining
    assert (row.name, row.reason[:7]) == ("0", "C2A106 ")
    assert_equal(model, network, IMAGE)


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
