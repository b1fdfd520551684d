"""A parametrised weight becomes a plain one; a convolution that is skipped keeps its parametrisation."""

import pytest
import torch
from models.parametrisations import PARAMETRISATIONS, parametrised
from whole import image_of

from conv2attn import MultiHeadSelfAttention, convert

IMAGE = image_of(2, 3, 6, 7)


@pytest.mark.parametrize("frozen", ["weight", "bias", "nothing"])
@pytest.mark.parametrize("kind", PARAMETRISATIONS)
def test_only_plain_parameters_are_left_and_what_was_frozen_stays_frozen(kind, frozen):
    model = parametrised(kind)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(frozen not in name)
    layer = convert(model)[0]
    assert isinstance(layer, MultiHeadSelfAttention)
    assert not layer._forward_pre_hooks
    names = {"output", "bias", "encoding"} | ({"weighted"} if kind == "pruned" else set())
    assert {name.partition(".")[0] for name in layer.state_dict()} == names
    assert (layer.output.requires_grad, layer.bias.requires_grad) == (frozen != "weight", frozen != "bias")
    assert not layer.encoding.alpha.requires_grad


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", PARAMETRISATIONS)
def test_one_that_is_skipped_keeps_its_parametrisation_and_state(kind, training):
    model = parametrised(kind).train(training)
    network = convert(model, skip="0")
    assert type(network[0]) is type(model[0]) or kind in [*PARAMETRISATIONS][:4]
    assert network[0]._forward_pre_hooks.keys() == model[0]._forward_pre_hooks.keys()
    for key, tensor in model.state_dict().items():
        assert torch.equal(network.state_dict()[key], tensor)
    assert torch.equal(network(IMAGE), model(IMAGE))
