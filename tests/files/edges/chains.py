"""Attention layers in a row, on patch tokens too: their files need no code to be loaded."""

import pytest
import torch
from torch import nn

from conv2attn import convert, load, save
from conv2attn.errors import CheckpointError

ACTIVATIONS = (nn.LeakyReLU(0.3), nn.ELU(0.5), nn.GELU("tanh"), nn.ReLU6(), nn.Identity())
CHAINS = {
    "one layer": lambda: nn.Conv2d(3, 4, 3, padding=1),
    "a patch embedding": lambda: nn.Conv2d(3, 4, 4, stride=4),
    "padded unequally": lambda: nn.Conv1d(2, 3, 2, padding="same"),
    "activations": lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), *ACTIVATIONS, nn.Conv2d(4, 2, 1)),
}


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_is_loaded_from_its_file_alone(name, suffix, tmp_path):
    model = CHAINS[name]()
    network = convert(model) if isinstance(model, nn.Sequential) else convert(model, patch=4)
    save(network, tmp_path / f"chain{suffix}")
    again = load(tmp_path / f"chain{suffix}")
    channels, axes = (2, 1) if isinstance(model, nn.Conv1d) else (3, 2)
    image = torch.randn(2, channels, *(8, 12)[:axes])
    assert repr(again) == repr(network)
    assert torch.equal(again(image), network(image))


def test_a_chain_that_does_more_than_its_layers_needs_its_network(tmp_path):
    network = convert(nn.Conv2d(3, 4, 3, padding=1), patch=4)
    network.register_forward_hook(lambda module, inputs, output: 2 * output)
    save(network, tmp_path / "chain.pt")
    with pytest.raises(CheckpointError, match=r"C2A304 .*: the converted network is a "):
        load(tmp_path / "chain.pt")


@pytest.mark.parametrize("stage", [("SpaceToDepth", {"patch": (0, 4)}), ("Linear", {}), ("ReLU", {"slope": 1})])
def test_a_stage_that_no_chain_has_is_refused(stage, tmp_path):
    path = tmp_path / "chain.pt"
    save(convert(nn.Conv2d(3, 4, 3, padding=1), patch=4), path)
    content = torch.load(path, weights_only=True)
    _, sizes = content["architecture"]
    content["architecture"] = ["chain", {"stages": (stage, *sizes["stages"][1:])}]
    torch.save(content, path)
    with pytest.raises(CheckpointError, match="C2A303"):
        load(path)
