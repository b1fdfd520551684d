"""A trained CNN goes on with some convolutions as attention: where it begins, and the rates of its parts."""

import pytest
import torch
from commands import call, refused
from lab.cases import quiet, small
from torch import nn

import conv2attn
from conv2attn.errors import UsageError
from conv2attn.lab.training import classifies, hybrid_network, train
from conv2attn.networks import attention_layers

RECIPE = ["--data", "digits", "--train-images", "40", "--batch", "10", "--epochs", "2", "--test-images", "20"]


@pytest.fixture(scope="module")
def cnn(tmp_path_factory):
    """The file of a small CNN that was trained for an epoch."""
    return train(small("resnet", width=4, epochs=1), tmp_path_factory.mktemp("cnn") / "run", report=quiet).network


def test_a_network_of_any_architecture_is_started_from(cnn, tmp_path, monkeypatch):
    """A state dict of the user's own network was refused, since nothing said how to build it."""
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def small(classes):\n"
        "    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
    torch.save(network.state_dict(), "mine.pt")
    arch = ["--arch", "mine.py:small", "--arch-args", '{"classes": 10}']
    trained = ["train", "resnet", "--start", "mine.pt", "-o", "run", *RECIPE, *arch]
    refused(*trained, "--skip", "none*", match="C2A008")
    assert call(*trained, "--only", "0").exit_code == 0
    network = conv2attn.load("run/network.pt", arch=arch[1], arch_args={"classes": 10})
    assert set(attention_layers(network)) == {"0"}
    refused("train", "resnet", *arch, *RECIPE, match="C2A004 an architecture is named, but no file to start from")


def test_a_hybrid_begins_as_the_softened_cnn_with_silent_content(cnn):
    original = conv2attn.load(cnn)
    network = hybrid_network(original, ["layer4.*"], 128.0).eval()
    images = torch.randn(3, 1, 8, 8)
    torch.testing.assert_close(network(images), original(images), rtol=1e-4, atol=1e-5)
    layers = attention_layers(network)
    assert layers
    assert all(layer.has_content and not layer.key.any() for layer in layers.values())
    with pytest.raises(UsageError, match="layer9"):
        hybrid_network(original, ["layer9.*"], 2.0)


@pytest.mark.parametrize("still", ["position_rate", "content_rate"])
def test_parts_have_rates_of_their_own(cnn, tmp_path, still):
    recipe = small(
        "resnet",
        start=str(cnn),
        only=("layer4.*",),
        optimiser="adamw",
        weight_decay=0.0,
        learning_rate=1e-2,
        **{still: 0},
    )
    first = attention_layers(hybrid_network(conv2attn.load(cnn), ["layer4.*"], 2.0))
    last = attention_layers(conv2attn.load(train(recipe, tmp_path / "run", report=quiet).network))
    for name, layer in last.items():
        moved = not torch.equal(layer.positions.center, first[name].positions.center)
        opened = bool(layer.key.any())
        assert (moved, opened) == (still != "position_rate", still != "content_rate")


def test_a_network_fits_if_it_makes_as_many_logits_as_there_are_classes():
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
    assert classifies(network, (1, 8, 8), 10)
    assert network.training
    for shape, classes in (((1, 8, 8), 3), ((3, 8, 8), 10), ((1, 2, 2), 10)):
        assert not classifies(network, shape, classes)
