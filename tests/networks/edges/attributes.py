"""Attributes of a convolution that hooks and networks read stay, and what is frozen stays frozen."""

import math
import queue
import sys
import threading
from contextlib import nullcontext
from itertools import product

import pytest
import torch
from torch import nn
from whole import assert_equal, image_of, whole

from conv2attn import certify, conversion_of, convert
from conv2attn.errors import UnsupportedError
from conv2attn.verdicts import Verdict

IMAGE = image_of(2, 3, 9, 8)


def test_plain_attributes_are_kept_and_not_shared_and_modules_in_them_are_the_copies():
    model, seen = whole(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3))), []
    vars(model[0]).update(limit=7, history=[1], following=[model[1]])
    model[0].register_forward_hook(lambda module, args, result: result.clamp(max=module.limit))
    model[0].register_forward_hook(lambda module, args, result: seen.append(module.kernel_size))
    network = convert(model)
    assert network[0].history == [1]
    assert network[0].history is not model[0].history
    assert network[0].following[0] is network[1]
    assert_equal(model, network, IMAGE)
    assert set(seen) == {(3, 3)}


def test_the_output_of_pooling_can_be_viewed():
    model = whole(nn.Sequential(nn.Conv2d(3, 4, 3, stride=2)))
    network = convert(model, stride_by="pooling")
    assert torch.equal(network(IMAGE).view(2, -1), model(IMAGE).view(2, -1))


@pytest.mark.filterwarnings("ignore:C2A132")
def test_frozen_weights_and_biases_stay_frozen():
    widths = ((3, 4, None), (4, 3, None), (3, 4, 6), (4, 3, 6), (3, 3, 3))
    for weight, bias, (d_in, d_out, d_head), trainable in product((True, False), (True, False), widths, (True, False)):
        conv = nn.Conv2d(d_in, d_out, 3)
        conv.weight.requires_grad_(weight)
        conv.bias.requires_grad_(bias)
        layer = convert(conv, d_head=d_head, trainable=trainable)
        factors = [layer.weight] if d_head in (None, 3) else [layer.value, layer.output]
        assert {factor.requires_grad for factor in factors} == {weight}
        assert layer.bias.requires_grad == bias
        assert (not layer.encoding.is_frozen) == trainable


@pytest.mark.parametrize("name", ["value", "encoding", "attention", "heads", "engine"])
def test_a_convolution_with_an_attribute_of_attention_is_not_converted(name):
    for give in (nn.Module.register_buffer, nn.Module.register_parameter, setattr):
        model = whole(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)))
        give(model[0], name, nn.Parameter(torch.ones(1)) if give is not setattr else 5)
        network = convert(model)
        (row,) = conversion_of(network).remaining
        assert (row.name, f"Conv2d has a {name} of its own" in row.reason) == ("0", True)
        assert_equal(model, network, IMAGE)
        assert dict(network.state_dict()).keys() == dict(model.state_dict()).keys()


class Remembering(nn.Module):
    """A convolution beside an object that Python does not copy."""

    def __init__(self, attribute):
        super().__init__()
        self.conv, self.attribute = nn.Conv2d(3, 4, 3), attribute

    def forward(self, x):
        with self.attribute if hasattr(self.attribute, "acquire") else nullcontext():
            return self.conv(x)


LOCKS = [threading.Lock(), threading.RLock(), [threading.Lock()], threading.Event(), queue.Queue()]


@pytest.mark.parametrize("attribute", [*LOCKS, threading.Condition(), threading.Semaphore(), math, sys.stderr])
def test_a_network_with_a_lock_a_module_or_an_open_file_is_converted(attribute):
    model = whole(Remembering(attribute))
    network = convert(model)
    assert_equal(model, network, IMAGE)
    assert certify(model, network, images=IMAGE)
    assert (network.attribute is attribute) == (attribute in (math, sys.stderr))


@pytest.mark.parametrize("attribute", [(part for part in "ab"), memoryview(b"ab"), [lambda: 1, threading.local()]])
def test_what_cannot_be_copied_is_named(attribute):
    model = whole(nn.Sequential(nn.ReLU(), Remembering(attribute)))
    with pytest.raises(UnsupportedError, match=r"C2A106 1\.attribute cannot be copied \(cannot pickle"):
        convert(model)
    certificate = certify(model, model, images=IMAGE)
    assert certificate.verdict is Verdict.UNSUPPORTED
    assert "1.attribute cannot be copied" in certificate.to_text(200)


class Slotted(nn.Conv2d):
    """A convolution whose objects are laid out otherwise than torch's."""

    __slots__ = ("gain",)


@pytest.mark.parametrize("options", [{}, {"d_head": 5}])
def test_a_convolution_with_slots_is_not_converted(options):
    model = whole(nn.Sequential(Slotted(3, 4, 3), nn.Conv2d(4, 4, 3)))
    network = convert(model, **options)
    assert "in slots" in conversion_of(network).remaining[0].reason
    assert_equal(model, network, IMAGE)


def test_a_name_of_its_own_stays():
    model = whole(nn.Sequential(nn.Conv2d(3, 4, 3)))
    model[0].name = "stem"
    assert convert(model)[0].name == "stem"
