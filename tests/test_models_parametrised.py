"""A parametrised weight is converted as it evaluates, in either mode; what is left alone keeps its parametrisation."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune
from whole import image_of, whole

from conv2attn import MultiHeadSelfAttention, conversion_of, convert

IMAGE = image_of(2, 3, 6, 7)


def old(function, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args)


def pruned(conv):
    prune.l1_unstructured(conv, "weight", 0.5)
    return prune.l1_unstructured(conv, "bias", 0.5)


class Doubled(nn.Module):
    def forward(self, tensor):
        return 2 * tensor


def doubled(conv):
    nn.utils.parametrize.register_parametrization(conv, "weight", Doubled())
    return nn.utils.parametrize.register_parametrization(conv, "bias", Doubled())


KINDS = {
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "weight and bias": doubled,
    "old weight_norm": lambda conv: old(nn.utils.weight_norm, conv),
    "old spectral_norm": lambda conv: old(nn.utils.spectral_norm, conv),
    "pruned": pruned,
    "pruned twice": lambda conv: prune.random_unstructured(prune.ln_structured(conv, "weight", 1, 2, 0), "weight", 1),
}


def network_with(kind: str) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(KINDS[kind](nn.Conv2d(3, 4, 3)), nn.ReLU())


@pytest.mark.parametrize("example", [None, IMAGE])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_it_computes_what_the_original_does_in_evaluation(kind, training, example):
    model = network_with(kind).train(training)
    before = copy.deepcopy(model.state_dict())
    network = convert(model, example_input=example)
    assert {key: torch.equal(model.state_dict()[key], before[key]) for key in before} == dict.fromkeys(before, True)
    assert model[0].training == network[0].training == training
    assert isinstance(network[0], MultiHeadSelfAttention)
    assert conversion_of(network).rows[0].outcome == "converted"
    assert not network[0]._forward_pre_hooks
    assert {name.partition(".")[0] for name in network[0].state_dict()} == {"output", "bias", "encoding"}
    network.eval()
    model.eval()
    assert torch.equal(network(IMAGE), model(IMAGE))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_one_that_is_skipped_keeps_its_parametrisation_and_state(kind, training):
    model = network_with(kind).train(training)
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
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_frozen_stays_frozen(kind, frozen, weight, bias):
    model = network_with(kind)
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


def test_a_shared_original_stays_tied_in_place():
    first, second = (parametrizations.weight_norm(nn.Conv2d(3, 3, 3)) for _ in range(2))
    second.parametrizations.weight.original1 = first.parametrizations.weight.original1
    model = whole(nn.Sequential(first, second))
    with torch.no_grad():
        first.parametrizations.weight.original1.fill_(1)
    network = convert(model)
    originals = [conv.parametrizations.weight.original1 for conv in network]
    assert originals[0] is originals[1]
    assert {row.outcome for row in conversion_of(network).rows} == {"converted"}
    assert torch.equal(network(IMAGE), model(IMAGE))
