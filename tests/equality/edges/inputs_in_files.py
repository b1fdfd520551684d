"""`verify --inputs FILE --match A=B`: several inputs of a call, in order or by argument name, as a file holds them."""

import json
import os
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import SIZE, call, refused

CODE = """
from torch import nn
from torch.nn import functional as F

class Crossing(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.embedding = nn.Linear(8, 8), nn.Linear(8, 8), nn.Embedding(9, 8)
        self.written = False

    def forward(self, x, memory, mask=None, ids=None, scale=1.0):
        q, k = self.q(x), self.k(memory)
        k = k if ids is None else k + self.embedding(ids)
        if not self.written:
            y = F.scaled_dot_product_attention(q, k, memory, mask) * scale
            return {"out": y, "double": y + y}
        scores = q @ k.mT / 8**0.5
        y = (scores if mask is None else scores + mask).softmax(-1) @ memory * scale
        return 2 * y, y
"""
GENERATOR = torch.Generator().manual_seed(0)
X, MEMORY = torch.randn(1, 3, 8, generator=GENERATOR), torch.randn(1, 4, 8, generator=GENERATOR)
MASK = torch.tensor([[0, 0, 0, -torch.inf]]).repeat(3, 1)
IDS = torch.tensor([[1, 2, 3, 4]])
CALLED = ["--match", "double=0", "--match", "out=1", "--inputs"]


@pytest.fixture
def verify(tmp_path, monkeypatch):
    """Arguments of verify in the current folder: two networks with other code and the same weights."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "crossings.py").write_text(CODE)
    monkeypatch.delitem(sys.modules, "crossings", raising=False)
    from crossings import Crossing

    torch.manual_seed(0)
    network = Crossing()
    torch.save(network, "a.pt")
    network.written = True
    torch.save(network, "b.pt")
    return ["verify", "a.pt", "b.pt", "--allow", "crossings.Crossing"]


FILES = {
    "in-order.npz": lambda path: np.savez(path, X.numpy(), MEMORY.numpy(), MASK.numpy()),
    "by-name.npz": lambda path: np.savez(path, x=X.double().numpy(), memory=MEMORY.numpy(), scale=2.0),
    "in-order.pt": lambda path: torch.save((X, MEMORY), path),
    "by-name.pt": lambda path: torch.save({"x": X, "memory": MEMORY, "mask": None, "ids": IDS, "scale": 0.5}, path),
}


@pytest.mark.parametrize("name", FILES)
def test_a_call_in_a_file_is_run_and_named(verify, name):
    FILES[name](name)
    result = call(*verify, *CALLED, name, "--format", "json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["verdict"] == "holds"
    assert f"the inputs of {name} (1x3x8 and 1x4x8" in report["outputs"]["images"]
    assert "of output['double'] and output[0]; output['out'] and output[1]" in report["claim"]


def test_tensors_that_do_not_belong_together_are_refuted_and_without_a_name_nothing_is_decided(verify):
    FILES["in-order.pt"]("call.pt")
    crossed = call(*verify, "--match", "double=1", "--match", "out=0", "--inputs", "call.pt")
    assert (crossed.exit_code, crossed.stdout.startswith("refuted (sampled)")) == (1, True), crossed.output
    unnamed = call(*verify, "--inputs", "call.pt")
    assert (unnamed.exit_code, "name them with --match A=B" in unnamed.stdout) == (3, True), unnamed.output


def test_a_mask_in_the_file_is_passed_on(verify):
    """Masked keys may be anything: with other numbers there both networks still agree, without the mask they differ."""
    other = MEMORY.clone()
    other[:, 3] += 1
    outputs = []
    for number, (memory, mask) in enumerate([(MEMORY, MASK), (other, MASK), (other, MASK * 0)]):
        torch.save({"x": X, "memory": memory, "mask": mask.nan_to_num(0.0)}, f"{number}.pt")
        result = call(*verify, *CALLED, f"{number}.pt", "--format", "json")
        outputs.append(json.loads(result.stdout)["outputs"]["largest_output"])
    assert outputs[0] == outputs[1] != outputs[2]


BAD = {
    "a name that is no argument": (
        lambda p: torch.save({"x": X, "memory": MEMORY, "mesk": MASK}, p),
        "'mesk', which is not an argument",
    ),
    "text": (lambda p: torch.save({"x": X, "memory": {1, 2}}, p), "call.pt holds a set among its inputs"),
    "not finite": (
        lambda p: torch.save((X, MEMORY * torch.nan), p),
        "C2A303 call.pt holds numbers that are not finite",
    ),
    "too few": (lambda p: torch.save({"x": X, "mask": MASK}, p), "C2A009"),
    "nothing of numbers": (lambda p: torch.save(([1], [2]), p), "C2A006 no input"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_no_call_is_refused(verify, name):
    write, match = BAD[name]
    write("call.pt")
    refused(*verify, "--inputs", "call.pt", match=match)


def test_an_archive_that_unpacks_to_more_than_its_bytes_is_refused(verify):
    with zipfile.ZipFile("call.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("x", "memory"):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.save(file, np.zeros((1 << 10, 1 << 13), "f4"))
                file.write(bytes(1 << 26))
    refused(*verify, "--inputs", "call.npz", match="C2A307")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["--input-size", "3x4"], "C2A004 --input-size is for images"),
        (["--mean", "0", "--std", "1"], "C2A004 --mean is for images"),
        (["--save-input", "shown.npz"], "C2A004 --save-input keeps an image"),
        (["--match", "out"], "C2A006"),
        (["--match", "out=0", "--match", "out=1"], "C2A004 --match names one tensor"),
        (["--match", "logits=0"], "C2A002"),
    ],
)
def test_options_that_do_not_fit_a_call_are_refused(verify, options, match):
    FILES["in-order.pt"]("call.pt")
    refused(*verify, "--inputs", "call.pt", *options, match=match)


def test_a_certificate_is_checked_again_with_its_own_inputs_alone(verify):
    FILES["by-name.npz"]("call.npz")
    assert call(*verify, *CALLED, "call.npz", "--report", "c.json").exit_code == 0
    document = json.loads(Path("c.json").read_text())
    hashed = {each["name"]: (each["shape"], each["dtype"]) for each in document["inputs"]}
    assert hashed == {"x": ([1, 3, 8], "float32"), "memory": ([1, 4, 8], "float32"), "scale": ([], "")}
    again = ["recheck", "c.json", *verify[3:]]
    os.rename("call.npz", "moved.npz")
    refused(*again, match="C2A301 call.npz, the inputs of the certificate, is missing")
    refused(*again, "--inputs", "nowhere.npz", match="nowhere.npz")
    result = call(*again, "--inputs", "moved.npz")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "holds: c.json"), result.output
    np.savez("call.npz", x=X.numpy(), memory=MEMORY.nextafter(X.new_tensor(9.0)).numpy(), scale=2.0)
    refused(*again, match="C2A004 call.npz has other inputs")
    refused(*again, "--inputs", "call.npz", match="C2A004 call.npz has other inputs")
    np.savez("call.npz", x=X.numpy(), memory=MEMORY.numpy(), scale=3.0)
    assert call(*again).exit_code == 1  # a plain value is compared with the document


@pytest.mark.parametrize("edit", ["sha256", "shape", "seed", "missing"])
def test_edited_inputs_of_a_certificate_do_not_pass(tmp_path, monkeypatch, edit):
    monkeypatch.chdir(tmp_path)
    torch.save(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3)), "a.pt")
    assert call("verify", "a.pt", "a.pt", *SIZE, "--report", "c.json").exit_code == 0
    document = json.loads(Path("c.json").read_text())
    if edit == "seed":
        document["seed"] = 1
    elif edit == "missing":
        document["inputs"] = []
    else:
        document["inputs"][0][edit] = {"sha256": "0" * 64, "shape": [1, 3, 12, 11]}[edit]
    Path("c.json").write_text(json.dumps(document))
    assert call("recheck", "c.json").exit_code == 1
    refused("recheck", "c.json", "--inputs", "a.pt", match="C2A004 the certificate is for random inputs")
