"""Attention on a device: it is read as on the CPU, and what is built from it lives where it does."""

import pytest
import torch
from attentions import LINE, hard
from layers.attention.cases import hard_layer, soft_layer
from torch import nn

import conv2attn
from conv2attn.layers.attention import Encoding, MultiHeadSelfAttention
from conv2attn.verdicts import Verdict

LAYERS = {
    "hard": lambda: hard_layer("plain", "auto"),
    "soft": lambda: soft_layer("auto"),
    "enumerated": lambda: conv2attn.convert(nn.Conv2d(2, 3, 3, padding=1), encoding="enumerated"),
    "learned": lambda: MultiHeadSelfAttention(2, 3, Encoding.of("learned", 4, (5, 6), 4)),
}


@pytest.fixture(params=LAYERS)
def layers(request, device):
    """A layer, and one with the same numbers on the device."""
    torch.manual_seed(0)
    layer = LAYERS[request.param]()
    moved = LAYERS[request.param]().to(device)
    moved.load_state_dict(layer.state_dict())
    moved.encoding.load_state_dict(layer.encoding.state_dict())
    return layer, moved


def test_a_layer_is_checked_and_described_as_on_the_cpu(layers):
    here, there = layers
    reports = [conv2attn.check_span(each, kernel_size=3, grid=(4, 5)) for each in (here, there)]
    assert reports[0].to_json() == reports[1].to_json()
    facts = [conv2attn.heads(each, grid=(4, 5)) for each in (here, there)]
    assert facts[0].to_json() == facts[1].to_json()


def test_arrays_and_captured_attention_are_read_from_a_device(device):
    attention = torch.from_numpy(hard((7,), LINE)).float().to(device)
    assert conv2attn.check_span(attention, offsets=LINE, grid=(7,)).verdict is Verdict.HOLDS
    network = nn.Sequential(hard_layer("plain", "auto"), nn.ReLU()).to(device)
    image = torch.randn(2, 3, 4, 5, device=device)
    maps = conv2attn.capture(network, image)
    assert {each.device for each in maps.values()} == {image.device}
    report = conv2attn.check_span(network, kernel_size=3, example_input=image)
    assert report.verdict is conv2attn.check_span(network.cpu(), kernel_size=3, example_input=image.cpu()).verdict


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_what_is_recovered_or_expressed_lives_where_the_layer_does(kind, device):
    layer = LAYERS[kind]().to(device)
    found = conv2attn.recover(layer, kernel_size=3)
    assert {each.device for each in found.module.parameters()} == {layer.like.device}
    conv = nn.Conv2d(3, 4, 3, padding=1).to(device)
    expressed = conv2attn.express(conv, layer)
    assert {each.device for each in expressed.parameters()} == {conv.weight.device}
    assert expressed(torch.randn(1, 3, 5, 6, device=device)).device == conv.weight.device
