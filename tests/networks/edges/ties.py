"""A parameter that is held in more than one place stays one: through conversion, copies, files and casts."""

import copy

import pytest
import torch
from networks.networks import Beside, convolution_and_embedding, encoder_and_decoder, sharing_parameters
from networks.parametrisations import sharing_an_original
from torch import nn
from whole import assert_equal, image_of, whole

from conv2attn import conversion_of, convert, load, save
from conv2attn.networks import attention_layers


def groups_of(network: nn.Module) -> set[frozenset[str]]:
    """The names under which each parameter is held, of those held more than once."""
    names = {}
    for name, parameter in network.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, set()).add(name)
    return {frozenset(each) for each in names.values() if len(each) > 1}


def through_a_file(network, model, path):
    save(network, path / "net.pt")
    return load(path / "net.pt", model=model)


@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.filterwarnings("ignore:C2A132")
def test_tied_parameters_stay_tied(trainable, tmp_path):
    parts = [encoder_and_decoder(5), convolution_and_embedding(), sharing_parameters(), sharing_an_original()]
    model = whole(Beside(parts))
    network = convert(model, trainable=trainable)
    expected = groups_of(model)
    assert len(expected) == 5
    again = through_a_file(network, model, tmp_path)
    for twin in (network, copy.deepcopy(network), again, again.to(torch.float64), again.half()):
        assert groups_of(twin) == expected


def test_a_tie_with_a_skipped_convolution_is_kept():
    first, second = nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3)
    second.weight = first.weight
    network = convert(whole(nn.Sequential(first, second)), skip="1")
    assert network[0].weight is network[1].weight
    assert [row.outcome for row in conversion_of(network).rows] == ["converted", "skipped"]
    assert list(attention_layers(network)) == ["0"]


def test_factors_of_another_width_are_each_layer_s_own():
    model = whole(sharing_parameters())
    network = convert(model, d_head=5)
    assert network[0].value is not network[1].value
    assert network[0].bias is network[1].bias
    assert_equal(model, network, image_of(2, 3, 6, 7))
