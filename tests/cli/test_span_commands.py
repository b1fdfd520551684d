"""check-span from the command line: our own files, arrays, models that the user builds, and positions alone."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from attentions import OFFSETS, gated, hard
from commands import call
from safetensors.torch import save_file
from torch import nn

import conv2attn

EXAMPLES = Path(conv2attn.__file__).parents[1] / "examples"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


HEADS = hard((5, 6), OFFSETS)
"""Nine heads that read their target where it is on the grid, else the nearest pixel."""
ARCH = "attentions:gated"


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


@pytest.mark.parametrize(
    ("option", "grids"),
    [(("--input-size", "2x8x10"), [[10, 12], [6, 7]]), (("--grid", "4x5"), [[6, 7], [6, 7]])],
)
def test_a_size_is_that_of_the_images_and_a_grid_that_of_the_tokens_of_each_layer(option, grids, folder):
    network = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1, stride=2), nn.Conv2d(2, 2, 3, padding=1))
    conv2attn.save(conv2attn.convert(network, (2, 8, 10)), "net.pt")
    for command in ("heads", "check-span"):
        report = json.loads(call(command, "net.pt", *option, "--format", "json").stdout)
        assert [layer["grid"] for layer in report["layers"]] == grids


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
        ("1", "undecided"),
    ]
    assert report["layers"][0]["notes"][0] == "from parameters, positions alone: gated positional attention"
    assert Path("heads.png").read_bytes().startswith(b"\x89PNG")
    text = call("check-span", *asked, "--offsets", "0,0").stdout
    assert "sampled" not in text
    assert "1, interior: not read: no input is known on which Sequential runs" in " ".join(text.split())


def test_our_own_files_say_that_parameters_were_read():
    result = call("check-span", EXAMPLES / "attention-quadratic.pt", "--position-only")
    assert (result.exit_code, "all: from parameters, positions alone" in result.stdout) == (1, True)
    conv2attn.save(conv2attn.convert(nn.Conv2d(2, 3, 3, padding=1)), "layer.pt")
    assert call("check-span", "layer.pt", "--position-only", "--grid", "5x6").exit_code == 0
    assert call("check-span", "layer.pt", "--position-only").exit_code == 2


def test_conditions_that_are_shown_together_are_named(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    np.save("heads.npy", HEADS)
    shown = call("check-span", "heads.npy", "--grid", "5x6", "--condition", "joint", "--condition", "interior", "-v")
    assert all(name in shown.stdout.split("not shown")[0] for name in ("joint *", "interior"))
