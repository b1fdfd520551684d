"""A parametrised weight becomes a plain one; a convolution that is skipped keeps its parametrisation."""

import pytest
import torch
from models.parametrisations import PARAMETRISATIONS, parametrised, pruned
from torch import nn
from whole import image_of

from conv2attn import MultiHeadSelfAttention, convert

IMAGE = image_of(2, 3, 6, 7)


@pytest.mark.parametrize("kind", PARAMETRISATIONS)
def test_only_plain_parameters_are_left(kind):
    layer = convert(parametrised(kind))[0]
    assert isinstance(layer, MultiHeadSelfAttention)
    assert not layer._forward_pre_hooks
    assert {name.partition(".")[0] for name in layer.state_dict()} == {"output", "bias", "encoding"}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", PARAMETRISATIONS)
def test_one_that_is_skipped_keeps_its_parametrisation_and_state(kind, training):
    model = parametrised(kind).train(training)
    network = convert(model, skip="0")
    assert type(network[0]) is type(model[0]) or kind in (
        "weight_norm",
        "spectral_norm",
        "orthogonal",
        "weight and bias",
    )
    assert network[0]._forward_pre_hooks.keys() == model[0]._forward_pre_hooks.keys()
    for key, tensor in model.state_dict().items():
        assert torch.equal(network.state_dict()[key], tensor)
    assert torch.equal(network(IMAGE), model(IMAGE))


@pytest.mark.parametrize(
    ("frozen", "weight", "bias"), [("weight", False, True), ("bias", True, False), ("", True, True)]
)
@pytest.mark.parametrize("kind", PARAMETRISATIONS)
def test_what_was_frozen_stays_frozen(kind, frozen, weight, bias):
    model = parametrised(kind)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not frozen or frozen not in name)
    layer = convert(model)[0]
    assert layer.output.requires_grad == weight
    assert layer.bias.requires_grad == bias
    assert not layer.encoding.alpha.requires_grad


def test_further_buffers_of_a_pruned_layer_are_kept_and_its_masks_are_not():
    conv = pruned(nn.Conv2d(3, 4, 3))
    conv.register_buffer("weighted", torch.ones(1))
    layer = convert(conv)
    assert dict(layer.named_buffers()).keys() == {"weighted"}
