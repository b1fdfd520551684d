"""check-span --position-only from the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import call, refused
from safetensors.torch import save_file
from torch import nn

import conv2attn

EXAMPLES = Path(__file__).parent.parent / "examples"


class GPSA(nn.Module):
    """Four gated heads whose positions are their parameters, as far as they are read."""

    def __init__(self):
        super().__init__()
        self.pos_proj, self.gating_param = nn.Linear(3, 4), nn.Parameter(torch.zeros(4))

    def forward(self, tokens):
        return tokens


def gated():
    """The network that --arch builds: a layer that can be read, and one that cannot."""
    GPSA.__module__ = "convit"
    return nn.Sequential(GPSA(), nn.MultiheadAttention(4, 2))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A state dict in two forms, and a converted layer."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    torch.save(gated().state_dict(), "gated.pt")
    save_file(gated().state_dict(), "gated.safetensors")
    np.save("heads.npy", np.eye(4)[None])
    np.save("images.npy", np.zeros((1, 3, 8, 8), np.float32))
    conv2attn.save(conv2attn.convert(nn.Conv2d(2, 3, 3, padding=1)), "layer.pt")
    return tmp_path


@pytest.mark.parametrize("file", ["gated.pt", "gated.safetensors"])
def test_a_model_of_the_user_s_is_read_and_what_cannot_be_read_is_named(file):
    asked = [file, "--arch", f"{__name__}:gated", "--position-only", "--grid", "4x4"]
    report = json.loads(call("check-span", *asked, "--format", "json", "--plot", "heads.png").stdout)
    assert [(layer["name"], layer["conditions"][0]["verdict"]) for layer in report["layers"]] == [
        ("0", "refuted"),
        ("1", "unsupported"),
    ]
    assert report["layers"][0]["notes"][0] == "from parameters, positions alone: gated positional attention"
    assert Path("heads.png").read_bytes().startswith(b"\x89PNG")
    text = call("check-span", *asked, "--offsets", "0,0").stdout
    assert "sampled" not in text
    assert "1, interior: not read: there is no rule that reads positions alone off a torch.nn" in text


def test_our_own_files_say_that_parameters_were_read():
    result = call("check-span", EXAMPLES / "attention-quadratic.pt", "--position-only")
    assert (result.exit_code, "all: from parameters, positions alone" in result.stdout) == (1, True)
    assert call("check-span", "layer.pt", "--position-only", "--grid", "5x6").exit_code == 0
    assert call("check-span", "layer.pt", "--position-only").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["heads.npy"], "C2A004 --position-only reads parameters, and an array has none"),
        (["gated.pt", "--arch", f"{__name__}:gated", "--inputs", "images.npy"], "C2A004 --position-only"),
        (["gated.pt", "--arch", f"{__name__}:gated"], "C2A503 0: it attends on every square grid"),
        (["gated.pt", "--arch", f"{__name__}:gated", "--grid", "4x5"], "C2A503 0: its positions are those of a square"),
        (["gated.pt", "--arch", f"{__name__}:gated", "--grid", "4x4", "--extra-tokens", "1"], "C2A004 0 attends to"),
        ([EXAMPLES / "resnet18.pt"], "C2A501 ResNet has no layer"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(arguments, match):
    refused("check-span", *arguments, "--position-only", match=match)
