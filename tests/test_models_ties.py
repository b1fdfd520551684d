"""What a network shares stays shared: modules, and parameters that are held in more than one place."""

import pytest
import torch
from torch import nn
from whole import assert_equal, image_of, whole

from conv2attn import conversion_of, convert
from conv2attn.models import attention_layers


def test_a_shared_module_stays_shared_and_has_one_row():
    shared = nn.Conv2d(3, 3, 3, padding=1)
    model = whole(nn.ModuleDict({"a": shared, "b": nn.Sequential(shared, nn.ReLU(), shared)}))
    network = convert(model)
    assert network["a"] is network["b"][0] is network["b"][2]
    assert [row.name for row in conversion_of(network).rows] == ["a"]


@pytest.mark.parametrize("d_head", [None, 5])
@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.filterwarnings("ignore:C2A132")
def test_parameters_that_convolutions_share_stay_one(trainable, d_head):
    first, second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 4, 3, padding=2, dilation=2)
    second.weight, second.bias = first.weight, first.bias
    model = whole(nn.ModuleList([first, second]))
    network = convert(model, trainable=trainable, d_head=d_head)
    image = image_of(2, 3, 6, 7)
    assert network[0].bias is network[1].bias
    holders = [[p for p in (layer.value, layer.output) if p is not None and p.abs().sum() > 27] for layer in network]
    assert holders[0][-1] is holders[1][-1]
    for i in range(2):
        assert_equal(model[i], network[i], image)


def encoder_and_decoder(d_out: int) -> nn.Module:
    encoder, decoder = nn.Conv2d(3, d_out, 3, padding=1), nn.ConvTranspose2d(d_out, 3, 3, padding=1)
    decoder.weight = encoder.weight
    return whole(nn.Sequential(encoder, decoder))


class Embedding(nn.Module):
    """Holds a convolution's weight as its own parameter."""

    def __init__(self, weight: nn.Parameter):
        super().__init__()
        self.table = weight

    def forward(self, image):
        return image + self.table.sum()


def convolution_and_embedding() -> nn.Module:
    convolution = nn.Conv2d(3, 3, 3)
    return whole(nn.Sequential(convolution, Embedding(convolution.weight)))


TIED = {
    "transposed, square": lambda: encoder_and_decoder(3),
    "transposed, wide": lambda: encoder_and_decoder(5),
    "another module": convolution_and_embedding,
}


@pytest.mark.parametrize("example", [None, image_of(2, 3, 6, 7)])
@pytest.mark.parametrize("name", TIED)
def test_a_parameter_held_by_something_else_too_stays_tied_and_is_attended_with(name, example):
    model = TIED[name]()
    network = convert(model, example_input=example)
    image = image_of(2, 3, 6, 7)
    assert_equal(model, network, image)
    ours, theirs = dict(network.named_parameters()), dict(model.named_parameters())
    assert [key for key in ours if "attending_calls" not in key] == list(theirs)
    rows = conversion_of(network).rows
    assert {row.outcome for row in rows} == {"converted"}
    assert "in place, because" in rows[0].reason
    network(image).sum().backward()
    model(image).sum().backward()
    for key, parameter in theirs.items():
        assert torch.equal(ours[key].grad, parameter.grad)
    whole(network, seed=5)
    assert not torch.equal(network(image), model(image))


def test_a_tie_with_a_skipped_convolution_is_kept():
    first, second = nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3)
    second.weight = first.weight
    network = convert(whole(nn.Sequential(first, second)), skip="1")
    assert network[0].weight is network[1].weight
    assert [row.outcome for row in conversion_of(network).rows] == ["converted", "skipped"]
    assert list(attention_layers(network)) == ["0.attending_calls.layers.0"]
