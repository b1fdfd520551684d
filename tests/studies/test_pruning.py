"""Pruned networks: what the network does whose removed heads have values of zero, and nothing else changed.

Pruning changes a trained network; the laws of tests/lab are of training.
"""

from copy import deepcopy

import pytest
import torch
from changes import changing
from commands import call

import conv2attn
from conv2attn.errors import Conv2AttnError
from conv2attn.layers.attention import ScoreTerms
from conv2attn.networks import attention_layers
from conv2attn.networks.zoo import AttentionClassifier, ClassifierPlan, ResNet, ResNetPlan
from studies.paper import paper
from studies.pruning import degenerate_heads, prune, prune_degenerate

SIZES = {"side": 12, "patch": 2, "channels": 1, "width": 12, "heads": 5, "layers": 2, "hidden": 8, "positions": 6}
KINDS = (
    ("quadratic", "vr"),
    ("generalised", "vr"),
    ("learned", "vr"),
    ("learned", "qk+qr"),
    ("quadratic", "qk+qr+uk+vr"),
)
REMOVED = {"blocks.0.attention": (1, 4), "blocks.1.attention": ()}


def network_of(encoding, terms):
    torch.manual_seed(0)
    return AttentionClassifier(ClassifierPlan(encoding, ScoreTerms.of(terms), **SIZES)).double().eval()


@torch.no_grad()
def silenced(network, removed):
    """The network, the values of those heads set to zero."""
    silent = deepcopy(network)
    for name, layer in attention_layers(silent).items():
        for head in removed[name]:
            layer.weights.output[head] = 0
    return silent


@pytest.mark.parametrize(("encoding", "terms"), KINDS)
def test_pruned_equals_unpruned_with_those_values_at_zero(encoding, terms):
    network = network_of(encoding, terms)
    image = torch.randn(2, 1, 12, 12, dtype=torch.float64)
    pruned = prune(network, REMOVED)
    torch.testing.assert_close(pruned(image), silenced(network, REMOVED)(image), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(pruned(image), network(image))
    other = silenced(network, {**REMOVED, "blocks.0.attention": (0, 4)})
    assert not torch.allclose(pruned(image), other(image))


@pytest.mark.parametrize(("encoding", "terms"), KINDS)
def test_all_else_is_bitwise_as_it_was_and_survives_a_file(tmp_path, encoding, terms):
    network = network_of(encoding, terms)
    pruned = prune(network, REMOVED)
    before, after = network.state_dict(), pruned.state_dict()
    assert before.keys() == after.keys()
    kept = torch.tensor([0, 2, 3])
    for key, tensor in before.items():
        if tensor.shape == after[key].shape:
            assert torch.equal(after[key], tensor), key
        else:
            axis = next(a for a, (x, y) in enumerate(zip(tensor.shape, after[key].shape, strict=True)) if x != y)
            assert torch.equal(after[key], tensor.index_select(axis, kept)), key
    assert pruned.plan.heads_of_layers == (3, 5)
    conv2attn.save(pruned, tmp_path / "pruned.pt")
    image = torch.randn(2, 1, 12, 12, dtype=torch.float64)
    assert torch.equal(conv2attn.load(tmp_path / "pruned.pt")(image), pruned(image))


def test_flat_heads_are_degenerate():
    network = network_of("quadratic", "vr")
    layers = attention_layers(network)
    with changing(layers["blocks.1.attention"], "alpha") as numbers:
        numbers[2] = 4e-6
    assert degenerate_heads(network) == {"blocks.0.attention": (), "blocks.1.attention": (2,)}
    with changing(layers["blocks.1.attention"], "alpha") as numbers:
        numbers[2] = 6e-6
    assert degenerate_heads(network)["blocks.1.attention"] == ()
    assert degenerate_heads(network, smallest=1e-4)["blocks.1.attention"] == (2,)
    with changing(layers["blocks.0.attention"], "alpha") as numbers:
        numbers[:] = float("nan")
    assert degenerate_heads(network)["blocks.0.attention"] == (0, 1, 2, 3, 4)


def test_stripes_are_degenerate():
    network = network_of("generalised", "vr")
    root = attention_layers(network)["blocks.0.attention"].encoding.root
    root.data[3] = torch.diag(torch.tensor([1.0, 10**-2.5 * 0.9]))
    root.data[1] = torch.diag(torch.tensor([1.0, 10**-2.5 * 1.1]))
    root.data[0] = 1e-3 * torch.eye(2)
    assert degenerate_heads(network)["blocks.0.attention"] == (0, 3)
    assert degenerate_heads(network, condition=1000)["blocks.0.attention"] == (0, 1, 3)


def test_the_command_prunes_a_file_and_says_what_it_saves(tmp_path):
    network = network_of("quadratic", "vr")
    with changing(attention_layers(network)["blocks.1.attention"], "alpha") as numbers:
        numbers[[0, 3]] = 0
    conv2attn.save(network, tmp_path / "whole.pt")
    result = call("prune", tmp_path / "whole.pt", "-o", tmp_path / "small.pt", program=paper)
    assert result.exit_code == 0, result.output
    assert "2 heads removed" in result.output
    pruned, report = prune_degenerate(network)
    assert report.parameters[0] - report.parameters[1] == 2 * (12 * 12 + 3)
    assert f"{report.parameters[0]:,} to {report.parameters[1]:,}" in result.output
    image = torch.randn(1, 1, 12, 12, dtype=torch.float64)
    assert torch.equal(conv2attn.load(tmp_path / "small.pt")(image), pruned(image))


REFUSED = {
    "all heads of a layer": (
        network_of("quadratic", "vr"),
        {"blocks.0.attention": range(5)},
        "C2A006 .*all of its heads",
    ),
    "a head that is not there": (network_of("quadratic", "vr"), {"blocks.0.attention": [5]}, "C2A002 .*has no head 5"),
    "a layer that is not there": (network_of("quadratic", "vr"), {"blocks.7": [0]}, r"C2A002 'blocks\.7' is no layer"),
    "another network": (ResNet(ResNetPlan(width=4)), {}, "C2A006 ResNet is not an attention classifier"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_pruned_is_refused(name):
    network, heads, match = REFUSED[name]
    with pytest.raises(Conv2AttnError, match=match):
        prune(network, heads)
