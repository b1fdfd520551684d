"""A converted network is the network it was, but for its convolutions; and the original is not touched at all."""

import copy

import pytest
import torch
from torch import nn
from whole import assert_equal, image_of, whole

from conv2attn import MultiHeadSelfAttention, conversion_of, convert
from conv2attn.models import attention_layers


class Block(nn.Module):
    """A convolution, a norm, a shortcut that is an empty Sequential, and a list that refers to its modules."""

    def __init__(self, d_in: int = 3, d_out: int = 4):
        super().__init__()
        self.conv = nn.Conv2d(d_in, d_out, 3, padding=1)
        self.norm = nn.BatchNorm2d(d_out)
        self.shortcut = nn.Sequential()
        self.steps = [self.conv, self.norm]
        self.by_name = {"conv": (self.conv,)}
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, image):
        for step in self.steps:
            image = step(image)
        return self.shortcut(image).relu() * self.scale


def network_of_blocks() -> nn.Module:
    return whole(nn.Sequential(Block(), nn.Dropout(0.5), Block(4, 2), nn.Flatten(), nn.Linear(84, 5)))


@pytest.mark.parametrize("example", [None, image_of(2, 3, 6, 7)])
@pytest.mark.parametrize("training", [False, True])
def test_all_but_the_convolutions_is_the_same_and_the_original_is_not_touched(example, training):
    model = network_of_blocks().train(training)
    model[0].norm.eval()
    model[4].weight.requires_grad_(False)
    before, state, modes = (
        copy.deepcopy(model.state_dict()),
        torch.get_rng_state(),
        [m.training for m in model.modules()],
    )
    network = convert(model, example_input=example)
    assert torch.equal(torch.get_rng_state(), state)
    assert [m.training for m in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(isinstance(module, MultiHeadSelfAttention) for module in model.modules())
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[key])
    ours = {name: module for name, module in network.named_modules() if ".encoding" not in name}
    assert list(ours) == [name for name, _ in model.named_modules()]
    for name, module in model.named_modules():
        assert ours[name].training == module.training
        assert type(ours[name]) is (MultiHeadSelfAttention if isinstance(module, nn.Conv2d) else type(module))
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if "conv" not in name:
            mine = network.get_parameter(name) if tensor.is_leaf and name in dict(model.named_parameters()) else None
            mine = network.get_buffer(name) if mine is None else mine
            assert torch.equal(mine, tensor)
            assert mine.requires_grad == tensor.requires_grad
            assert mine.data_ptr() != tensor.data_ptr()


@pytest.mark.parametrize("example", [None, image_of(2, 3, 6, 7)])
def test_lists_and_dictionaries_refer_to_the_attention_too(example):
    model = network_of_blocks().eval()
    network = convert(model, example_input=example)
    assert network[0].steps[0] is network[0].conv is network[0].by_name["conv"][0]
    assert isinstance(network[0].conv, MultiHeadSelfAttention)
    assert_equal(model, network, image_of(2, 3, 6, 7), engines=["auto", "conv"])


def test_containers_of_every_kind_are_searched():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.listed = nn.ModuleList([nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 1)])
            self.named = nn.ModuleDict({"a": nn.Sequential(nn.Conv2d(3, 3, 2))})

        def forward(self, image):
            return self.named["a"](self.listed[1](self.listed[0](image)))

    model = whole(Network())
    network = convert(model)
    assert list(attention_layers(network)) == ["listed.0", "listed.1", "named.a.0"]
    assert_equal(model, network, image_of(2, 3, 6, 7))


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


@pytest.mark.parametrize("part", ["parameter", "module", "buffer"])
def test_a_convolution_with_further_parts_keeps_them(part):
    model = nn.Sequential(nn.Conv2d(3, 3, 3), nn.ReLU())
    match part:
        case "parameter":
            model[0].gain = nn.Parameter(torch.ones(1))
        case "module":
            model[0].gain = nn.Linear(2, 2)
        case _:
            model[0].register_buffer("value", torch.ones(1))
    network = convert(whole(model))
    assert "of its own" in conversion_of(network).rows[0].reason
    assert model.state_dict().keys() < network.state_dict().keys()
    assert_equal(model, network, image_of(2, 3, 6, 7))
