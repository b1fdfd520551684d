"""--arch, near names, missing keys, wrappers, prefixes and classes: nothing is ignored, and what is assumed is said."""

import re
import tomllib
from pathlib import Path

import pytest
import torch
from networks.networks import Calls
from safetensors.torch import save_file
from torch import nn
from whole import image_of, whole

import conv2attn
from conv2attn.errors import CheckpointError
from conv2attn.extras import EXTRAS
from conv2attn.files import Reading, architecture, load, save
from conv2attn.networks import provenance_of
from conv2attn.networks.zoo import ResNet, ResNetPlan

SOURCE = """
from torch import nn


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, image):
        return self.act(self.head(self.stem(image).relu()))


    act = staticmethod(lambda image: image)


class Smooth(Net):
    def __init__(self, width=4, act=nn.functional.gelu):
        super().__init__(width)
        self.act = act
"""


@pytest.fixture
def factory(folder):
    """A file with a network in it, in the working folder, and the network."""
    (folder / "netfile.py").write_text(SOURCE)
    torch.manual_seed(0)
    return architecture("netfile.py:Net").build().eval()


@pytest.mark.parametrize("arch", ["netfile.py:Net", "netfile:Net"])
@pytest.mark.parametrize("prefix", ["", "module.", "model.backbone."])
def test_a_factory_builds_the_network_of_a_wrapped_state_dict(factory, arch, prefix):
    state = {prefix + key: tensor for key, tensor in factory.state_dict().items()}
    torch.save({"epoch": 3, "model_state_dict": state}, "net.pt")
    network, image = load("net.pt", arch), torch.randn(1, 3, 9, 8)
    assert torch.equal(network(image), factory(image))
    told = provenance_of(network)
    assert told.architecture == arch
    assert "weights under the key 'model_state_dict'" in told.assumed
    assert (f"prefix '{prefix.split('.')[0]}.' removed from 4 keys" in told.assumed) == bool(prefix)


def test_arguments_of_the_architecture_are_used(factory):
    torch.save(architecture("netfile.py:Net", {"width": 7}).build().state_dict(), "wide.pt")
    assert load("wide.pt", "netfile.py:Net", arch_args={"width": 7}).stem.out_channels == 7


def test_arguments_are_a_json_object():
    assert Reading(arch_args='{"num_classes": 10}').options()["arch_args"] == {"num_classes": 10}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes_are_those_of_the_file(factory, dtype):
    torch.save(factory.to(dtype).state_dict(), "net.pt")
    network = load("net.pt", "netfile.py:Net")
    assert {each.dtype for each in network.parameters()} == {dtype}


def test_a_file_that_records_its_architecture_is_not_built_as_another(factory):
    """Once `--arch` of a look-alike made verify prove a GELU network equal to a ReLU one."""
    torch.save(factory.state_dict(), "net.pt")
    save(conv2attn.convert(load("net.pt", "netfile.py:Net")), "net.attn.pt")
    for arch, arguments in (("netfile.py:Smooth", None), ("netfile:Net", None), ("netfile.py:Net", {"width": 4})):
        with pytest.raises(CheckpointError, match=r"C2A304 net.attn.pt holds netfile.py:Net, not net"):
            load("net.attn.pt", arch, arch_args=arguments)
    assert load("net.attn.pt", "./netfile.py:Net").stem.d_out == 4
    save(conv2attn.convert(factory), "net.attn.pt", force=True)
    with pytest.raises(CheckpointError, match=r"C2A304 net.attn.pt holds netfile.Net, not netfile"):
        load("net.attn.pt", "netfile.py:Smooth")
    assert load("net.attn.pt", "netfile.py:Net").stem.d_out == 4


def test_arguments_that_a_file_records_need_not_be_passed(factory):
    torch.save(architecture("netfile.py:Net", {"width": 7}).build().state_dict(), "wide.pt")
    save(conv2attn.convert(load("wide.pt", "netfile.py:Net", arch_args={"width": 7})), "wide.attn.pt")
    for arguments in (None, {"width": 7}):
        assert load("wide.attn.pt", "netfile.py:Net", arch_args=arguments).stem.d_out == 7
    with pytest.raises(CheckpointError, match="C2A304"):
        load("wide.attn.pt", "netfile.py:Net", arch_args={"width": 4})


@pytest.mark.parametrize("name", ["net.attn.pt", "net.attn.safetensors"])
def test_a_converted_network_of_another_class_is_saved_and_needs_its_class(factory, name):
    torch.save(factory.state_dict(), "net.pt")
    network = conv2attn.convert(load("net.pt", "netfile.py:Net"))
    save(network, name)
    image = torch.randn(1, 3, 9, 8)
    for again in (load(name, "netfile.py:Net"), load(name, model=factory)):
        assert torch.equal(again(image), network(image))
    with pytest.raises(CheckpointError, match=r"C2A304 .*netfile.py:Net, which is code.* Pass arch netfile.py:Net, or"):
        load(name)


def test_a_user_own_network_that_was_never_read_from_a_file_is_saved(factory):
    network, image = conv2attn.convert(factory), torch.randn(1, 3, 9, 8)
    save(network, "net.attn.pt")
    assert torch.equal(load("net.attn.pt", model=factory)(image), network(image))
    with pytest.raises(CheckpointError, match=r"C2A304 .*: the converted network is a "):
        load("net.attn.pt")


def test_a_resnet_without_fc_is_a_backbone(tmp_path):
    state = ResNet(ResNetPlan(depths=(1, 1, 1, 1), width=4, classes=3)).state_dict()
    save_file({key: each for key, each in state.items() if not key.startswith("fc.")}, tmp_path / "net.safetensors")
    network = load(tmp_path / "net.safetensors")
    assert network(torch.zeros(1, 3, 32, 32)).shape == (1, 32)
    assert any("no fc" in line for line in provenance_of(network).assumed)


def test_a_layer_alone_is_loaded_into_its_own_class(tmp_path):
    torch.save(nn.Conv2d(3, 4, 3).state_dict(), tmp_path / "conv.pt")
    conv = load(tmp_path / "conv.pt", model=nn.Conv2d(3, 4, 3))
    assert conv.weight.shape == (4, 3, 3, 3)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_functional_convolutions_are_saved_with_their_attention(tmp_path, suffix):
    torch.manual_seed(0)
    original, image = whole(Calls()).eval(), image_of(2, 3, 9, 8)
    network = conv2attn.convert(original, example_input=image)
    save(network, tmp_path / f"net{suffix}")
    again = load(tmp_path / f"net{suffix}", model=original)
    assert torch.equal(again(image), network(image))
    assert conv2attn.conversion_of(again) == conv2attn.conversion_of(network)
    names = {name for name, _ in again.named_modules()}
    assert names == {name for name, _ in network.named_modules()}
    twice = load(tmp_path / f"net{suffix}", model=network)
    assert torch.equal(twice(image), network(image))


PACKAGES = {"PIL": "pillow", "sklearn": "scikit-learn"}
"""Packages whose names are not those of their libraries."""


def test_the_extra_that_an_error_names_brings_the_library_and_torchvision_no_other():
    project = tomllib.loads((Path(conv2attn.__file__).parents[1] / "pyproject.toml").read_text())["project"]
    brings = {
        extra: {re.split(r"[\[>=<]", each)[0] for each in requirements}
        for extra, requirements in project["optional-dependencies"].items()
    }
    assert [each for each, extra in EXTRAS.items() if PACKAGES.get(each, each) not in brings[extra]] == []
    assert brings[EXTRAS["torchvision"]] == {"torchvision"}
