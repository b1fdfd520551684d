"""Parametrisations, pruning and norms compute the weight of the attention as they did that of the convolution."""

import pytest
import torch
from networks.parametrisations import PARAMETRISATIONS, parametrised
from torch import nn
from torch.nn.utils import parametrize, prune
from whole import image_of

from conv2attn import MultiHeadSelfAttention, conversion_of, convert, set_engine
from conv2attn.errors import Conv2AttnWarning

IMAGE = image_of(2, 3, 6, 7)


def trained(network: nn.Module) -> torch.Tensor:
    """The outputs after 20 steps from one seed."""
    torch.manual_seed(0)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(20):
        optimiser.zero_grad()
        network(torch.randn(4, 3, 6, 7)).square().mean().backward()
        optimiser.step()
    return network.eval()(IMAGE).detach()


@pytest.mark.parametrize("kind", PARAMETRISATIONS)
def test_it_trains_to_the_same_numbers(kind):
    model = parametrised(kind).train()
    network = set_engine(convert(model), "conv")
    expected = trained(model)
    torch.testing.assert_close(trained(network), expected, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(parametrised(kind).eval()(IMAGE), expected, atol=1e-2)
    for key, tensor in network.state_dict().items():
        torch.testing.assert_close(tensor, model.state_dict()[key], rtol=1e-5, atol=1e-6)


def test_pruning_and_parametrising_go_on_after_the_conversion():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3))
    network = convert(model)
    for each in (model, network):
        prune.l1_unstructured(each[0], "weight", 0.5)
        nn.utils.parametrizations.weight_norm(each[1])
    assert torch.equal(network(IMAGE), model(IMAGE))
    for each in (model, network):
        prune.remove(each[0], "weight")
        parametrize.remove_parametrizations(each[1], "weight")
    assert type(network[1]) is MultiHeadSelfAttention
    assert torch.equal(network(IMAGE), model(IMAGE))


def test_a_parametrisation_of_a_convolution_can_be_removed_from_its_attention():
    model = parametrised("weight_norm")
    network = convert(model)
    parametrize.remove_parametrizations(network[0], "weight")
    assert type(network[0]) is MultiHeadSelfAttention
    assert torch.equal(network(IMAGE), model(IMAGE))


@pytest.mark.parametrize("kind", PARAMETRISATIONS)
def test_a_computed_weight_does_not_become_factors(kind):
    with pytest.warns(Conv2AttnWarning, match="C2A109 no convolution of"):
        (row,) = conversion_of(convert(parametrised(kind), d_head=7)).remaining
    assert "C2A106 0: Conv2d computes its weight" in row.reason


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", PARAMETRISATIONS)
def test_a_skipped_convolution_keeps_its_parametrisation_and_state(kind, training):
    model = parametrised(kind).train(training)
    network = convert(model, skip="0")
    assert type(network[0]) is type(model[0]) or kind in [*PARAMETRISATIONS][:4]
    assert network[0]._forward_pre_hooks.keys() == model[0]._forward_pre_hooks.keys()
    for key, tensor in model.state_dict().items():
        assert torch.equal(network.state_dict()[key], tensor)
    assert torch.equal(network(IMAGE), model(IMAGE))
