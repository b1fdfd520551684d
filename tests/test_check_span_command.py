"""check-span from the command line: our own files, arrays, and models that the user builds."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from attentions import hard
from click.testing import CliRunner
from safetensors.numpy import save_file
from torch import nn

import conv2attn
from conv2attn.cli import main

EXAMPLES = Path(__file__).parent.parent / "examples"
OFFSETS = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments):
    result = CliRunner().invoke(main, ["check-span", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def hard_heads():
    """Nine heads that read their target where it is on the 5 x 6 grid, else the nearest pixel."""
    return hard((5, 6), OFFSETS)


def test_the_trained_example_is_read_with_its_own_grid():
    result = call(EXAMPLES / "attention-quadratic.pt", "--format", "json")
    report = json.loads(result.stdout)
    assert result.exit_code == report["exit_code"] == 1
    assert [layer["grid"] for layer in report["layers"]] == [[4, 4]] * 4


def test_a_converted_layer_holds(folder):
    conv2attn.save(conv2attn.convert(nn.Conv2d(2, 3, 3, padding=1)), "layer.pt")
    assert call("layer.pt", "--grid", "6x7").exit_code == 0
    missing = call("layer.pt")
    assert (missing.exit_code, "--grid" in missing.stderr) == (2, True)


@pytest.mark.parametrize("form", ["npy", "npz", "safetensors"])
def test_arrays(folder, form):
    heads = hard_heads()
    assert (heads[4] == np.eye(30)).all()
    match form:
        case "npy":
            np.save("heads.npy", heads)
        case "npz":
            np.savez("heads.npz", whatever=heads)
        case "safetensors":
            save_file({"heads": heads}, "heads.safetensors")
    path = f"heads.{form}"
    assert call(path, "--grid", "5x6").exit_code == 0
    assert call(path, "--grid", "5x6", "--condition", "joint").exit_code == 1
    assert call(path, "--grid", "6x6").exit_code == 2
    assert call(path, "--grid", "5x6", "--offsets", "0,0 0,2").exit_code == 1


def test_grids_beyond_all_memory_are_refused(folder):
    model = Path(__file__).parent.parent / "examples/attention-quadratic.pt"
    result = call(str(model), "--grid", "100000x100000")
    assert result.exit_code == 2
    assert "100000x100000 keys have scores of 80,000,000,000 bytes an axis" in result.stderr


def test_layers_in_one_array(folder):
    np.save("layers.npy", np.stack([hard_heads(), hard_heads()]))
    report = json.loads(call("layers.npy", "--grid", "5x6", "--format", "json").stdout)
    assert len(report["layers"]) == 2


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
        ([EXAMPLES / "resnet18.pt"], "C2A501"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(folder, arguments, match):
    for name in ("broken.npz", "broken.safetensors", "broken.pt"):
        (folder / name).write_bytes(b"not what it says")
    torch.save({"weight": torch.zeros(2, 2)}, "some.pt")
    np.save("odd.npy", np.zeros((1, 1, 9, 9), dtype=np.float32))
    result = call(*arguments)
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1), result.output
    assert match in result.stderr
