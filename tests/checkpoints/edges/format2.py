"""Files of format /2, stored when it was written: the networks in them, bit for bit, and their weights by name."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from whole import assert_equal, image_of, whole

from conv2attn import MultiHeadSelfAttention, convert, load, save, soften
from conv2attn.errors import CheckpointError
from conv2attn.models import attention_layers
from conv2attn.models.zoo.resnet import ResNetPlan, build_resnet

FOLDER = Path(__file__).parents[1] / "format2"


class Functional(nn.Module):
    """A transposed layer, a layer whose weight a call reads, and calls."""

    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose2d(3, 4, 3, stride=2, groups=1)
        self.read = nn.Conv2d(4, 4, 3, padding=1)
        self.mix = nn.Parameter(torch.empty(2, 4, 2, 2))

    def forward(self, image):
        image = self.read(self.up(image))
        image = image + F.conv2d(image, self.read.weight, self.read.bias, 1, 1)
        return F.conv2d(image, self.mix, stride=2)


def tied() -> nn.Module:
    first, second = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=2, dilation=2)
    second.weight, second.bias = first.weight, first.bias
    return nn.Sequential(first, nn.ReLU(), second)


IMAGE = image_of(2, 3, 8, 9)
NETWORKS = {
    "resnet.pt": (lambda: build_resnet(ResNetPlan(depths=(1, 1, 1, 1), width=1, classes=2, stem="cifar")), IMAGE),
    "layer.safetensors": (
        lambda: nn.Conv2d(4, 2, (1, 3), padding_mode="reflect", padding=(0, 1)),
        image_of(2, 4, 3, 9),
    ),
    "tied.pt": (tied, IMAGE),
    "functional.pt": (Functional, IMAGE),
}


def read(name: str, model: nn.Module) -> nn.Module:
    return load(FOLDER / name, model=model if name == "functional.pt" else None)


@pytest.mark.parametrize("name", NETWORKS)
def test_it_is_the_network_and_its_state_that_of_the_cnn(name, tmp_path):
    make, image = NETWORKS[name]
    model = whole(make()).eval()
    network = read(name, model)
    engines = ["auto"] if name == "resnet.pt" else ["auto", "gather"]
    assert_equal(model, network, image, engines=engines)
    assert len(attention_layers(network)) == len(attention_layers(convert(model, image)))
    if name != "functional.pt":  # whose transposed layer was stored as the convolution that it is
        assert list(network.state_dict()) == list(model.state_dict())
        whole(make(), seed=3).load_state_dict(network.state_dict())
    save(network, tmp_path / f"again{Path(name).suffix}")
    again = load(tmp_path / f"again{Path(name).suffix}", model=model if name == "functional.pt" else None)
    assert_equal(model, again, image, engines=engines)


def test_what_was_tied_is_tied():
    network = load(FOLDER / "tied.pt")
    assert network[0].weight is network[2].weight
    assert network[0].bias is network[2].bias


def test_positions_that_trained_train_and_factors_stay():
    layer = load(FOLDER / "trained.pt")
    model = whole(nn.ConvTranspose1d(4, 6, 3, stride=2, groups=2))
    assert isinstance(layer, MultiHeadSelfAttention)
    assert list(layer.state_dict()) == ["value", "output", "bias", "encoding.center", "encoding.alpha"]
    assert all(parameter.requires_grad for parameter in layer.parameters())
    image = torch.randn(2, 4, 9)
    torch.testing.assert_close(layer(image), soften(convert(model), alpha=5).network(image), rtol=1e-5, atol=1e-5)


def moved(content):
    content["layers"]["0"]["positions"] = [8, 2]


def renamed(content):
    content["state_dict"]["0.taps"] = content["state_dict"].pop("0.output")


def without_centres(content):
    del content["state_dict"]["0.encoding.center"]


@pytest.mark.parametrize("change", [moved, renamed, without_centres])
def test_a_file_that_is_not_whole_is_refused(change, tmp_path):
    content = torch.load(FOLDER / "tied.pt", weights_only=True)
    change(content)
    torch.save(content, tmp_path / "net.pt")
    with pytest.raises(CheckpointError, match="C2A303 its"):
        load(tmp_path / "net.pt")
