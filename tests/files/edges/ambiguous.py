"""Weights that fit two published models are refused until the user or the file's name says which; reports say it."""

import json
from pathlib import Path

import pytest
import torch
from commands import call
from torch import nn

from conv2attn import convert
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.files import load, registries, save
from conv2attn.files.architectures import Architecture
from conv2attn.networks import provenance_of
from conv2attn.networks.zoo import ResNet, ResNetPlan

PLANS = {"resnet18": ResNetPlan(), "resnet50": ResNetPlan("bottleneck", (3, 4, 6, 3))}


@pytest.fixture(scope="module")
def states():
    torch.manual_seed(0)
    return {name: ResNet(plan).state_dict() for name, plan in PLANS.items()}


@pytest.mark.parametrize("name", PLANS)
def test_weights_of_two_models_are_refused_and_both_are_named(states, name):
    torch.save({"state_dict": states[name]}, "net.pt")
    with pytest.raises(
        CheckpointError, match=f"C2A304 .*fit {1 + len(PLANS[name].twins)} models: {name}, timm"
    ) as caught:
        load("net.pt")
    assert (caught.value.exit_code, f"arch {name}" in str(caught.value)) == (2, True)
    assert all(each in str(caught.value) for each in PLANS[name].twins)


@pytest.mark.parametrize(
    ("file", "arch", "how"),
    [
        ("resnet18-f37072fd.pth", None, "by the file's name (timm:resnetblur18 fits too)"),
        ("net.pt", "resnet18", "by --arch resnet18 (timm:resnetblur18 fits too)"),
    ],
)
def test_the_file_name_or_the_user_decides_and_the_assumption_is_recorded(states, file, arch, how):
    torch.save(states["resnet18"], file)
    network = load(file, arch)
    assert network.plan == ResNetPlan()
    assert provenance_of(network).to_text() == f"read as resnet18 (torchvision's resnet18, ReLU, {how})"


def test_a_file_named_after_the_other_model_is_not_read_as_a_plain_resnet(states):
    torch.save(states["resnet18"], "resnetblur18.pt")
    try:
        network = load("resnetblur18.pt")
    except UsageError as error:
        assert "needs timm" in str(error)  # noqa: PT017
    else:
        assert provenance_of(network).architecture == "timm:resnetblur18"


def test_commands_refuse_and_inspect_names_both(states):
    torch.save(states["resnet18"], "net.pt")
    for command in (["convert", "net.pt"], ["verify", "net.pt", "net.pt"], ["heads", "net.pt"]):
        result = call(*command)
        assert (result.exit_code, result.stdout) == (2, ""), command
        assert "timm:resnetblur18" in result.stderr, command
    report = json.loads(call("inspect", "net.pt", "--format", "json").stdout)
    assert report["architectures"] == ["resnet18", "timm:resnetblur18"]


def test_the_head_of_a_report_and_its_claim_say_what_was_assumed():
    torch.save(ResNet(ResNetPlan(depths=(1, 1, 1, 1), width=4, classes=3)).state_dict(), "tiny.pt")
    assumption = "read as resnet-basic-1-1-1-1 (torchvision's resnet-basic-1-1-1-1, ReLU, from keys and shapes alone)"
    options = ["--input-size", "3x32x32"]
    text = call("verify", "tiny.pt", "tiny.pt", *options, "--report", "certificate.json")
    assert assumption in " ".join(text.stdout.partition("\n\n")[0].split())
    assert assumption in json.loads(Path("certificate.json").read_text())["claim"]


def test_reports_on_heads_say_what_was_assumed_of_the_network_that_was_converted():
    torch.save({"state_dict": ResNet(ResNetPlan(depths=(1, 1, 1, 1), width=4, classes=3)).state_dict()}, "tiny.pt")
    save(convert(load("tiny.pt")), "attn.pt")
    options = ["attn.pt", "--grid", "6x6", "--only", "layer1.0.conv1"]
    assumption = "network read as resnet-basic-1-1-1-1 (weights under the key 'state_dict'; torchvision's"
    for command in ("heads", "check-span"):
        for form in ("text", "json", "markdown"):
            done = call(command, *options, "--format", form)
            assert done.exit_code == 0, done.output
            assert assumption.removeprefix("network ") in " ".join(done.stdout.split()), (command, form)


def test_models_of_two_libraries_that_weights_fit_alike_need_a_choice(monkeypatch):
    built = [Architecture(name, lambda: nn.Sequential(nn.Conv2d(3, 4, 3))) for name in ("torchvision:net", "timm:net")]
    monkeypatch.setattr(registries, "fitting_models", lambda *arguments: (built, True))
    torch.save(nn.Sequential(nn.Conv2d(3, 4, 3)).state_dict(), "best.ckpt")
    with pytest.raises(CheckpointError, match=r"C2A304 .* fit 2 models: torchvision:net, timm:net"):
        load("best.ckpt")
