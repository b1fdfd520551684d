"""A certificate of files of any form is checked again as one of plain state dicts, or refused in a sentence."""

import json
import zipfile
from pathlib import Path

import pytest
import torch
from commands import call
from safetensors.torch import load_file, safe_open, save_file
from torch import nn

import conv2attn
from conv2attn.checkpoints.folders import sha256
from conv2attn.equivalence import recheck
from conv2attn.errors import UsageError
from conv2attn.verdicts import Verdict


def network():
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Conv2d(3, 2, 2, bias=False))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    Path("net.py").write_text(
        "from torch import nn\n"
        "def make():\n"
        "    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Conv2d(3, 2, 2, bias=False))\n"
    )


def put(name):
    """A seeded network in a file of some form."""
    model, path = network(), f"{name.replace(' ', '-')}.pt"
    weights = {f"module.backbone.{key}": each for key, each in model.state_dict().items()}
    match name:
        case "safetensors":
            path = "net.safetensors"
            save_file(model.state_dict(), path)
        case "wrapped safetensors":
            path = "wrapped.safetensors"
            save_file(weights, path)
        case "legacy":
            torch.save(model.state_dict(), path, _use_new_zipfile_serialization=False)
        case "wrapped":
            torch.save({"state_dict_ema": weights, "epoch": 3}, path)
        case "nested":
            torch.save({"model": {"state_dict": weights}, "where": Path("x")}, path)
        case "module":
            torch.save(model, path)
    return path


def certified(original, converted):
    """A certificate that verify wrote of two files."""
    asked = ["verify", original, converted, "--input-size", "2x6x5", "--report", "c.json", "--arch", "net.py:make"]
    result = call(*asked)
    assert result.exit_code == 0, result.output
    return "c.json"


FORMS = {
    "safetensors": ".pt",
    "wrapped safetensors": ".safetensors",
    "legacy": ".safetensors",
    "wrapped": ".pt",
    "nested": ".safetensors",
    "module": ".pt",
}


@pytest.mark.parametrize(("form", "suffix"), FORMS.items())
def test_files_of_every_form_are_checked_again(form, suffix):
    path, converted = put(form), f"attn{suffix}"
    conv2attn.save(conv2attn.convert(conv2attn.load(path, "net.py:make")), converted)
    found = recheck(certified(path, converted))
    assert (found.verdict, found.checked) == (Verdict.HOLDS, 2), found


@pytest.mark.parametrize(("key", "verdict"), [("1.bias", Verdict.UNDECIDED), ("2.value", Verdict.REFUTED)])
def test_a_changed_number_in_safetensors_is_found(key, verdict):
    conv2attn.save(conv2attn.convert(conv2attn.load(put("safetensors"), "net.py:make")), "attn.safetensors")
    certified("net.safetensors", "attn.safetensors")
    with safe_open("attn.safetensors", "pt") as file:
        metadata = file.metadata()
    tensors = load_file("attn.safetensors")
    tensors[key].view(-1)[0] += 1
    save_file(tensors, "attn.safetensors", metadata)
    body = json.loads(Path("c.json").read_text())
    body["circumstances"]["converted sha256"] = sha256(Path("attn.safetensors"))
    Path("c.json").write_text(json.dumps(body))
    assert recheck("c.json").verdict is verdict


def test_another_architecture_in_safetensors_is_found():
    conv2attn.save(conv2attn.convert(conv2attn.load(put("safetensors"), "net.py:make")), "attn.safetensors")
    certified("net.safetensors", "attn.safetensors")
    body = json.loads(Path("c.json").read_text())
    assert body["circumstances"]["converted architecture"]
    body["circumstances"]["converted architecture"] = "another"
    Path("c.json").write_text(json.dumps(body))
    assert recheck("c.json").wrong == ("the converted has another architecture than the certificate",)


@pytest.mark.parametrize("path", ["net.pt2", "net.onnx"])
def test_programs_are_refused_with_what_to_do(path):
    if path == "net.pt2":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("net/archive_format", "pt2")
    else:
        Path(path).write_bytes(b"\x08\x07\x12\x04text")
    hashes = {f"{which} sha256": sha256(Path(path)) for which in ("original", "converted")}
    body = {
        "circumstances": {"original": path, "converted": path, **hashes},
        "layers": [],
        "context": {"digests": ["one", "one"]},
        "verdict": "holds",
    }
    Path("c.json").write_text(json.dumps(body))
    with pytest.raises(UsageError, match=rf"{path} is an? .*\. Run verify on the two files again\."):
        recheck("c.json")


def test_a_program_is_verified_against_weights_that_need_arch():
    path = put("safetensors")
    conv2attn.save(conv2attn.convert(conv2attn.load(path, "net.py:make")), "net.pt2", input_size=(2, 6, 5))
    asked = ["verify", path, "net.pt2", "--arch", "net.py:make", "--input-size", "2x6x5"]
    result = call(*asked, "--format", "json")
    assert result.exit_code == 3, result.output
    assert json.loads(result.stdout)["verdict"] == "undecided"
