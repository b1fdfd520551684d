"""check-span from the command line: our own files, arrays, models that the user builds, and positions alone."""

import json
from pathlib import Path
from typing import TypedDict, Unpack

import numpy as np
import pytest
import torch
from attentions import OFFSETS, gated, hard
from commands import call, refused
from safetensors.torch import save_file
from torch import nn

import conv2attn
from conv2attn.errors import UsageError
from conv2attn.files.call_inputs import read_call

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
    report = json.loads(call("check-span", *asked, "--format", "json").stdout)
    assert [(layer["name"], layer["conditions"][0]["verdict"]) for layer in report["layers"]] == [
        ("0", "refuted"),
        ("1", "undecided"),
    ]
    assert report["layers"][0]["notes"][0] == "from parameters, positions alone: gated positional attention"
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


@pytest.fixture
def encoder():
    """Arguments that name an encoder layer of torch in a file, and the tokens that it runs on."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, activation=nn.GELU(), batch_first=True)
    torch.save(nn.TransformerEncoder(layer, 1).eval(), "encoder.pt")
    return ["encoder.pt", "--inputs"], torch.randn(3, 5, 8)


def test_a_mask_in_a_file_of_inputs_is_passed_to_the_network(encoder):
    """A mask that leaves each token itself alone makes each head the shift by 0, which none is without it."""
    named, tokens = encoder
    mask = torch.full((5, 5), -torch.inf).fill_diagonal_(0)
    torch.save({"src": tokens, "mask": mask}, "by-name.pt")
    torch.save((tokens, mask), "in-order.pt")
    torch.save({"src": tokens}, "without.pt")
    for file, code in {"by-name.pt": 0, "in-order.pt": 0, "without.pt": 1}.items():
        assert call("check-span", *named, file, "--offsets", "0").exit_code == code, file
        facts = json.loads(call("heads", *named, file, "--format", "json").stdout)["layers"][0]["heads"]
        assert all((head["peak_mass"] == 1) == (code == 0) for head in facts), file


@pytest.mark.parametrize("command", [("heads",), ("check-span",), ("explore", "-o", "page.html")])
@pytest.mark.parametrize(
    ("entries", "match"),
    [
        ({"src": 3, "mesk": 2}, "'mesk', which is not an argument of TransformerEncoder"),
        ({"images": 3, "mask": 2}, "'images', which is not an argument"),
        ({"images": 3, "mesk": 2}, "'mesk' besides the inputs of the network"),
    ],
)
def test_an_entry_of_a_file_of_inputs_is_no_argument_in_silence(encoder, command, entries, match):
    named, tokens = encoder
    torch.save({name: tokens if axes == 3 else tokens[0] for name, axes in entries.items()}, "inputs.pt")
    options = ("--input-size", "1x5x8") if command[0] == "explore" and "beside" in match else ()
    refused(*command, *named, "inputs.pt", *options, match=match)


def test_images_have_labels_and_further_arguments_are_those_that_a_library_lists(encoder):
    """Labels beside images are no input; of **kwargs with a list of names, others than those are refused."""

    class Keywords(TypedDict):
        bias: torch.Tensor

    class Network(nn.Linear):
        def forward(self, pixels_of, labels=None, **further: Unpack[Keywords]):
            return super().forward(pixels_of)

    image = torch.zeros(2, 3, 8)
    for entries, found in {("images", "labels"): None, ("pixels_of", "bias"): (2, 3, 8)}.items():
        torch.save(dict(zip(entries, (image, torch.tensor([1, 2])), strict=True)), "inputs.pt")
        read = read_call("inputs.pt", Network(8, 2))
        assert (read and tuple(read[0].named["pixels_of"].shape)) == found
    torch.save({"pixels_of": image, "bais": image}, "inputs.pt")
    with pytest.raises(UsageError, match=r"C2A006 .*'bais'"):
        read_call("inputs.pt", Network(8, 2))


def test_a_page_is_of_images_and_not_of_a_call(encoder):
    named, tokens = encoder
    torch.save({"src": tokens, "mask": tokens[0]}, "inputs.pt")
    refused("explore", *named, "inputs.pt", "-o", "page.html", match="C2A004 a page shows images")
