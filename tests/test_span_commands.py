"""check-span from the command line: our own files, arrays, models that the user builds, and positions alone."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from attentions import OFFSETS, hard
from commands import call, refused
from safetensors.torch import save_file
from torch import nn

import conv2attn

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


HEADS = hard((5, 6), OFFSETS)
"""Nine heads that read their target where it is on the grid, else the nearest pixel."""
ARCH = f"{__name__}:gated"


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


def test_the_trained_example_is_read_with_its_own_grid():
    result = call("check-span", EXAMPLES / "attention-quadratic.pt", "--format", "json")
    report = json.loads(result.stdout)
    assert result.exit_code == report["exit_code"] == 1
    assert [layer["grid"] for layer in report["layers"]] == [[4, 4]] * 4


def test_a_converted_layer_holds(folder):
    conv2attn.save(conv2attn.convert(nn.Conv2d(2, 3, 3, padding=1)), "layer.pt")
    assert call("check-span", "layer.pt", "--grid", "6x7").exit_code == 0
    missing = call("check-span", "layer.pt")
    assert (missing.exit_code, "--grid" in missing.stderr) == (2, True)


@pytest.mark.parametrize("form", ["npy", "npz", "safetensors"])
def test_arrays(folder, form):
    assert (HEADS[4] == np.eye(30)).all()
    match form:
        case "npy":
            np.save("heads.npy", HEADS)
        case "npz":
            np.savez("heads.npz", whatever=HEADS)
        case "safetensors":
            save_file({"heads": torch.from_numpy(HEADS)}, "heads.safetensors")
    path = f"heads.{form}"
    assert call("check-span", path, "--grid", "5x6").exit_code == 0
    assert call("check-span", path, "--grid", "5x6", "--condition", "joint").exit_code == 1
    assert call("check-span", path, "--grid", "6x6").exit_code == 2
    assert call("check-span", path, "--grid", "5x6", "--offsets", "0,0 0,2").exit_code == 1


def test_grids_beyond_all_memory_are_refused(folder):
    model = Path(__file__).parent.parent / "examples/attention-quadratic.pt"
    result = call("check-span", str(model), "--grid", "100000x100000")
    assert result.exit_code == 2
    assert "100000x100000 keys have scores of 80,000,000,000 bytes an axis" in result.stderr


def test_layers_in_one_array(folder):
    np.save("layers.npy", np.stack([HEADS, HEADS]))
    report = json.loads(call("check-span", "layers.npy", "--grid", "5x6", "--format", "json").stdout)
    assert len(report["layers"]) == 2


@pytest.mark.parametrize("file", ["gated.pt", "gated.safetensors"])
def test_a_model_of_the_user_s_is_read_and_what_cannot_be_read_is_named(file):
    torch.save(gated().state_dict(), "gated.pt")
    save_file(gated().state_dict(), "gated.safetensors")
    asked = [file, "--arch", ARCH, "--position-only", "--grid", "4x4"]
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
    conv2attn.save(conv2attn.convert(nn.Conv2d(2, 3, 3, padding=1)), "layer.pt")
    assert call("check-span", "layer.pt", "--position-only", "--grid", "5x6").exit_code == 0
    assert call("check-span", "layer.pt", "--position-only").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["missing.npz"], "C2A301"),
        (["broken.npz"], "C2A303"),
        (["broken.safetensors"], "C2A303"),
        (["broken.pt", "--arch", "no_such_package:factory"], "C2A003"),
        (["some.pt", "--arch", "builtins:dict"], "builds a dict, not an nn.Module"),
        (["some.pt", "--arch", "torch.nn:Linear"], "raised TypeError"),
        ([EXAMPLES / "attention-quadratic.pt", "--inputs", "odd.npy"], "does not run on images of 1x1x9x9 numbers"),
        ([EXAMPLES / "attention-quadratic.pt", "--offsets", "0,99999999999999999999"], "farther than any grid"),
        ([EXAMPLES / "attention-quadratic.pt", "--kernel-size", "99999999999"], "are more than 4096"),
        ([EXAMPLES / "attention-quadratic.pt", "--offsets", "left"], "C2A006"),
        ([EXAMPLES / "attention-quadratic.pt", "--offsets", ""], "C2A006"),
        ([EXAMPLES / "attention-quadratic.pt", "--extra-tokens", "1"], "C2A004"),
        ([EXAMPLES / "attention-quadratic.pt", "--kernel-size", "0"], "C2A006"),
        ([EXAMPLES / "resnet18.pt"], "C2A501 ResNet has no layer that is known to attend"),
        (["array.npy", "--inputs", "odd.npy"], "C2A004 --inputs"),
        (["heads.npy", "--position-only"], "C2A004 --position-only reads parameters, and an array has none"),
        (["gated.pt", "--arch", ARCH, "--inputs", "images.npy", "--position-only"], "C2A004 --position-only"),
        (["gated.pt", "--arch", ARCH, "--position-only"], "C2A503 0: it attends on every square grid"),
        (
            ["gated.pt", "--arch", ARCH, "--grid", "4x5", "--position-only"],
            "C2A503 0: its positions are those of a square",
        ),
        (
            ["gated.pt", "--arch", ARCH, "--grid", "4x4", "--extra-tokens", "1", "--position-only"],
            "C2A004 0 attends to",
        ),
        ([EXAMPLES / "resnet18.pt", "--position-only"], "C2A501 ResNet has no layer"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(folder, arguments, match):
    for name in ("broken.npz", "broken.safetensors", "broken.pt"):
        (folder / name).write_bytes(b"not what it says")
    torch.save({"weight": torch.zeros(2, 2)}, "some.pt")
    np.save("array.npy", HEADS)
    np.save("heads.npy", np.eye(4)[None])
    np.save("images.npy", np.zeros((1, 3, 8, 8), np.float32))
    torch.save(gated().state_dict(), "gated.pt")
    np.save("odd.npy", np.zeros((1, 1, 9, 9), dtype=np.float32))
    refused("check-span", *arguments, match=match)


def test_conditions_that_are_shown_together_are_named(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    np.save("heads.npy", HEADS)
    shown = call("check-span", "heads.npy", "--grid", "5x6", "--condition", "joint", "--condition", "interior", "-v")
    assert all(name in shown.stdout.split("not shown")[0] for name in ("joint *", "interior"))
