"""Attention layers in a row: their files need no code to be loaded."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from conv2attn import convert, load, save

ACTIVATIONS = (nn.LeakyReLU(0.3), nn.ELU(0.5), nn.GELU("tanh"), nn.ReLU6(), nn.Identity(), nn.Tanh(), nn.Sigmoid())
CHAINS = {
    "one layer": lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1)),
    "padded unequally": lambda: nn.Sequential(nn.ConstantPad1d((0, 1), 0.0), nn.Conv1d(2, 3, 2)),
    "padded around": lambda: nn.Sequential(nn.CircularPad2d(1), nn.Conv2d(3, 4, 3)),
    "activations": lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), *ACTIVATIONS, nn.Conv2d(4, 2, 1)),
}


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_is_loaded_from_its_file_alone(name, suffix, tmp_path):
    network = convert(CHAINS[name]())
    save(network, tmp_path / f"chain{suffix}")
    again = load(tmp_path / f"chain{suffix}")
    channels, axes = (2, 1) if name == "padded unequally" else (3, 2)
    image = torch.randn(2, channels, *(8, 12)[:axes])
    assert repr(again) == repr(network)
    assert torch.equal(again(image), network(image))


CONV = nn.Conv2d(3, 3, 3, padding=1)
OTHERS = {
    "a layer that occurs twice": lambda: nn.Sequential(CONV, nn.ReLU(), CONV),
    "a parametrised weight": lambda: nn.Sequential(parametrizations.weight_norm(deepcopy(CONV))),
    "a weight computed by a hook": lambda: nn.Sequential(prune.identity(deepcopy(CONV), "weight")),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_sequentials_are_loaded_into_a_copy_of_the_original(name, tmp_path):
    original = OTHERS[name]()
    network = convert(original)
    save(network, tmp_path / "other.pt")
    again = load(tmp_path / "other.pt", model=original)
    image = torch.randn(2, 3, 8, 8)
    assert len(set(again)) == len(set(original))
    assert again.state_dict().keys() == network.state_dict().keys()
    assert torch.equal(again(image), network(image))
