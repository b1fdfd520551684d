"""Attributes of a convolution: those that hooks and networks read stay, and those that torch accepts are read."""

import pytest
import torch
from models.networks import Block
from torch import nn
from whole import assert_equal, image_of, whole

from conv2attn import MultiHeadSelfAttention, convert

IMAGE = image_of(2, 3, 9, 8)


def test_plain_attributes_are_kept_and_not_shared():
    model, seen = whole(nn.Sequential(nn.Conv2d(3, 4, 3))), []
    model[0].limit, model[0].history = 7, [1]
    model[0].register_forward_hook(lambda module, args, result: result.clamp(max=module.limit))
    model[0].register_forward_hook(lambda module, args, result: seen.append(module.kernel_size))
    network = convert(model)
    assert isinstance(network[0], MultiHeadSelfAttention)
    assert network[0].history == [1]
    assert network[0].history is not model[0].history
    assert_equal(model, network, IMAGE)
    assert set(seen) == {(3, 3)}


def test_attributes_that_refer_to_modules_refer_to_the_copies():
    model = whole(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)))
    vars(model[0])["following"] = [model[1]]
    network = convert(model)
    assert network[0].following[0] is network[1]


CHANGES = {
    "dilation": lambda conv: setattr(conv, "dilation", 2),
    "stride": lambda conv: setattr(conv, "stride", 2),
    "padding": lambda conv: setattr(conv, "padding", 1),
    "one number for all axes": lambda conv: setattr(conv, "dilation", (2,)),
}


CASES = [(change, kind) for change in CHANGES for kind in (nn.Conv2d, nn.ConvTranspose2d)]
CASES.remove(("padding", nn.ConvTranspose2d))  # torch refuses it itself


@pytest.mark.parametrize("example", [None, IMAGE])
@pytest.mark.parametrize(("change", "kind"), CASES)
def test_one_integer_stands_for_a_tuple(change, kind, example):
    conv = kind(3, 4, 3)
    CHANGES[change](conv)
    model = whole(nn.Sequential(conv))
    assert_equal(model, convert(model, example_input=example), IMAGE)


def test_an_output_padding_may_be_an_integer():
    conv = nn.ConvTranspose2d(3, 4, 3, stride=2)
    conv.output_padding = 1
    assert_equal(whole(conv), convert(conv), IMAGE)


def test_a_padding_changed_after_construction_counts_as_torch_counts_it():
    """torch keeps the amounts of the construction where it does not pad with zeros."""
    for mode in ("zeros", "reflect", "circular", "replicate"):
        conv = whole(nn.Conv2d(3, 4, 3, padding=1, padding_mode=mode))
        conv.padding = (2, 2)
        assert_equal(conv, convert(conv), IMAGE)
        assert_equal(conv, convert(conv, example_input=IMAGE), IMAGE)


def test_what_pooling_returns_can_be_viewed():
    model = whole(nn.Sequential(nn.Conv2d(3, 4, 3, stride=2)))
    network = convert(model, stride_by="pooling")
    assert torch.equal(network(IMAGE).view(2, -1), model(IMAGE).view(2, -1))


@pytest.mark.filterwarnings("ignore:C2A132")
def test_frozen_weights_and_biases_stay_frozen():
    for weight, bias in ((True, False), (False, True), (False, False), (True, True)):
        for d_in, d_out, d_head in ((3, 4, None), (4, 3, None), (3, 4, 6), (4, 3, 6), (3, 3, 3)):
            for trainable in (False, True):
                conv = nn.Conv2d(d_in, d_out, 3)
                conv.weight.requires_grad_(weight)
                conv.bias.requires_grad_(bias)
                layer = convert(conv, d_head=d_head, trainable=trainable)
                taps = [p for p in (layer.value, layer.output) if p is not None and not torch.equal(p, p.round())]
                identities = [p for p in (layer.value, layer.output) if p is not None and torch.equal(p, p.round())]
                assert [p.requires_grad for p in taps] == [weight]
                assert layer.bias.requires_grad == bias
                positions = [*identities, *layer.encoding.parameters()]
                assert {p.requires_grad for p in positions} == {trainable}


def test_buffers_of_a_convolution_are_carried_over():
    conv = nn.Conv2d(3, 3, 3)
    conv.register_buffer("steps", torch.tensor(7))
    conv.register_buffer("cache", torch.ones(2), persistent=False)
    layer = convert(conv)
    assert torch.equal(layer.steps, conv.steps)
    assert layer.steps is not conv.steps
    assert "steps" in layer.state_dict()
    assert "cache" not in layer.state_dict()


def test_lists_and_dictionaries_refer_to_the_attention():
    network = convert(whole(nn.Sequential(Block())))
    assert network[0].steps[0] is network[0].conv is network[0].by_name["conv"][0]
