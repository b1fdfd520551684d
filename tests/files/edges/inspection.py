"""inspect says what a file is, names all code in it, and runs none of it."""

import json
import os

import pytest
import torch
from commands import call
from files.hostile import Runs
from torch import nn

import conv2attn
from conv2attn.files import RECOVERED
from conv2attn.networks.zoo import ResNet, ResNetPlan


def inspect(path, code=0):
    result = call("inspect", str(path), "--format", "json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if code == 0 else result.stderr


def test_a_state_dict_is_described_by_its_tensors_and_its_architecture():
    state = ResNet(ResNetPlan(width=8, classes=5)).state_dict()
    state["fc.bias"][0] = float("nan")
    torch.save({"state_dict": {f"module.{key}": each for key, each in state.items()}}, "net.pt")
    report = inspect("net.pt")
    assert (report["architectures"], report["findings"]) == (["resnet18"], ["fc.bias is not finite"])
    assert ["conv1.weight", [8, 3, 7, 7], "float32"] in report["tensors"]
    assert any("from keys and shapes alone" in line for line in report["assumed"])


@pytest.mark.parametrize("name", ["layer.pt", "layer.safetensors"])
def test_a_file_of_this_project_is_named(name):
    conv2attn.save(conv2attn.convert(nn.Conv2d(2, 3, 3)), name)
    report = inspect(name)
    assert report["architectures"] == ["layer"]
    assert report["assumed"] == ["written by conv2attn, 1 attention layer"]


WRITTEN = {
    "recover: 1 convolution, of attention": {
        "format": RECOVERED,
        "layers": {"attention": {}},
    },
}


@pytest.mark.parametrize("finding", WRITTEN)
def test_a_file_that_a_command_wrote_is_named(finding):
    torch.save(WRITTEN[finding], "file.pt")
    assert finding in inspect("file.pt")["findings"][0]


def test_every_name_of_code_is_listed_and_none_is_run(folder):
    torch.save({"model": nn.Conv2d(3, 4, 3), "bomb": Runs(os.mkdir, str(folder / "planted"))}, "net.pt")
    (line, *_) = inspect("net.pt")["findings"]
    assert "torch.nn.modules.conv.Conv2d" in line
    assert "posix.mkdir" in line
    assert not (folder / "planted").exists()
