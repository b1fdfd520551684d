"""Saved networks: read again bit for bit, and refused where the plan and the tensors do not fit."""

import copy

import pytest
import torch
from commands import refused, residual, save_converted, save_residual

import conv2attn


def test_a_saved_network_is_the_network_bit_for_bit(tmp_path):
    network = conv2attn.convert(residual(), alpha=60, stride_by="pooling", encoding="enumerated")
    conv2attn.save(network, tmp_path / "saved.pt")
    again = conv2attn.load(tmp_path / "saved.pt")
    mine, theirs = network.state_dict(), again.state_dict()
    assert list(mine) == list(theirs)
    assert all(torch.equal(mine[key], theirs[key]) and mine[key].stride() == theirs[key].stride() for key in mine)
    assert str(network) == str(again)
    assert conv2attn.conversion_of(network) == conv2attn.conversion_of(again)
    assert [p.requires_grad for p in network.parameters()] == [p.requires_grad for p in again.parameters()]


@pytest.mark.filterwarnings("ignore:C2A132")
def test_a_saved_layer_is_the_layer(tmp_path):
    layer = conv2attn.convert(torch.nn.ConvTranspose1d(4, 6, 3, stride=2, groups=2), trainable=True)
    conv2attn.save(layer, tmp_path / "layer.pt")
    image = torch.randn(2, 4, 9)
    assert torch.equal(conv2attn.load(tmp_path / "layer.pt")(image), layer(image))


def planned(*path, to):
    """Another entry in the plan of the first layer."""

    def change(content):
        plan = content["layers"]["conv1"]
        for key in path[:-1]:
            plan = plan[key]
        plan[path[-1]] = to

    return change


def weights(dtype):
    """Weights of another kind."""

    def change(content):
        content["state_dict"]["conv1.weight"] = content["state_dict"]["conv1.weight"].to(dtype)

    return change


UNFIT = "C2A303 its plan and its tensors do not fit each other"
FALSE = {
    "no stride": (planned("sites", "stride", to=(0, 0)), UNFIT),
    "a negative stride": (planned("sites", "stride", to=(-1, 2)), UNFIT),
    "a stride of floats": (planned("sites", "stride", to=(2.0, 2.0)), UNFIT),
    "a stride of one axis": (planned("sites", "stride", to=(2,)), UNFIT),
    "words for numbers": (planned("sites", "before", to=("a", "b")), UNFIT),
    "no spacing": (planned("padding", "spacing", to=(0, 0)), UNFIT),
    "an unknown mode": (planned("padding", "mode", to="exec"), UNFIT),
    "no groups": (planned("groups", to=0), UNFIT),
    "a truth value": (planned("d_in", to=True), UNFIT),
    "another format": (
        lambda content: content.update(conv2attn="conv2attn.network/3"),
        "is a network of format 'conv2attn.network/3', and this version reads 'conv2attn.network/4'",
    ),
    "another width": (planned("d_out", to=17), "C2A303"),
    "an unknown engine": (planned("engine", to="evil"), UNFIT),
    "more heads than memory": (planned("positions", to=[10**30, 2]), UNFIT),
    "complex weights": (weights(torch.complex64), "conv1.weight is torch.complex64"),
    "whole weights": (weights(torch.int64), "conv1.weight is torch.int64"),
    "a tensor of another name": (
        lambda content: content["state_dict"].update(outputs=content["state_dict"].pop("conv1.weight")),
        "C2A303",
    ),
    "a tensor that is missing": (lambda content: content["state_dict"].pop("fc.weight"), "C2A303"),
    "another depth": (lambda content: content["architecture"][1].update(depths=[3, 4, 6, 3]), "C2A303"),
    "more blocks than memory": (
        lambda content: content["architecture"][1].update(depths=[10**9, 1, 1, 1]),
        "1000000003 blocks of ",
    ),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """What the file of a converted network holds."""
    return torch.load(save_converted(tmp_path_factory.mktemp("saved") / "saved.pt"), weights_only=True)


@pytest.mark.parametrize("name", FALSE)
def test_a_saved_network_with_a_false_plan_is_refused_before_it_is_built(tmp_path, saved, name):
    change, match = FALSE[name]
    content = copy.deepcopy(saved)
    change(content)
    torch.save(content, tmp_path / "false.pt")
    refused("verify", save_residual(tmp_path / "net.pt"), tmp_path / "false.pt", match=match)
