"""Small files that claim much are refused before memory or time goes into them; shared storages are read once."""

import zipfile
from collections import OrderedDict

import numpy as np
import onnx
import pytest
import torch
from files.hostile import zipped
from torch import nn

import conv2attn
from conv2attn.errors import CheckpointError
from conv2attn.files import contents_of, kinds, load, read_dict, read_images, save

WEIGHT = torch.arange(6.0)


class Pickled:
    """An OrderedDict whose pickle gives it an attribute in the place of a method."""

    def __reduce__(self):
        return OrderedDict, (), {"items": 5}, None, iter({"weight": WEIGHT}.items())


def refused(read, path, code):
    with pytest.raises(CheckpointError) as caught:
        read(path)
    assert (caught.value.code, caught.value.exit_code) == (code, 2), str(caught.value)


@pytest.mark.timeout(30)
def test_two_names_of_one_list_thirty_times_over_end(tmp_path):
    nested: list = [WEIGHT]
    for _ in range(30):
        nested = [nested, nested]
    torch.save({"weight": WEIGHT, "nested": nested}, tmp_path / "file.pt")
    refused(read_dict, tmp_path / "file.pt", "C2A307")


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_of_one_byte_a_list_is_not_unpickled(tmp_path, legacy, monkeypatch):
    pickle = b"\x80\x02](" + b"]" * 2_000_000 + b"e."
    if legacy:
        (tmp_path / "file.pt").write_bytes(kinds.LEGACY_HEAD + b"\x80\x02M\xe9\x03.\x80\x02}." + pickle + b"\x80\x02].")
    else:
        (tmp_path / "file.pt").write_bytes(zipped([("archive/data.pkl", pickle), ("archive/version", b"3\n")]))
    monkeypatch.setattr(torch, "load", pytest.fail)
    refused(read_dict, tmp_path / "file.pt", "C2A307")


def test_an_ordinary_history_beside_weights_is_unpickled(tmp_path):
    history = [{"loss": float(step), "step": step} for step in range(20_000)]
    torch.save({"state_dict": {"weight": WEIGHT}, "history": history}, tmp_path / "file.pt")
    assert len(read_dict(tmp_path / "file.pt")["history"]) == 20_000


def test_attributes_of_a_pickled_dict_are_not_its_methods(tmp_path):
    torch.save(Pickled(), tmp_path / "file.pt")
    assert list(read_dict(tmp_path / "file.pt").items())[0][0] == "weight"  # noqa: RUF015
    assert contents_of(tmp_path / "file.pt").content.keys() == {"weight"}


def test_compressed_zeros_are_not_unpacked(tmp_path):
    np.savez_compressed(tmp_path / "zeros.npz", np.zeros((1, 1 << 13, 1 << 14), np.uint8))
    refused(lambda path: read_images(str(path)), tmp_path / "zeros.npz", "C2A307")
    np.savez_compressed(tmp_path / "few.npz", np.zeros((1, 1 << 9, 1 << 9), np.uint8))
    assert len(read_images(str(tmp_path / "few.npz"))[0]) == 1


def test_names_of_one_storage_share_their_copy_in_a_rebuilt_network(tmp_path):
    network = conv2attn.convert(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)))
    save(network, tmp_path / "net.pt")
    plan = torch.load(tmp_path / "net.pt", weights_only=True)
    many = torch.zeros(1_000_000)
    plan["state_dict"] |= {f"extra{number}": many for number in range(300)}
    torch.save(plan, tmp_path / "many.pt")
    refused(load, tmp_path / "many.pt", "C2A303")


def test_entries_of_a_program_that_claim_more_text_than_the_file_are_refused(tmp_path):
    program = torch.export.export(nn.Sequential(nn.Conv2d(3, 4, 3)).eval(), (torch.zeros(1, 3, 8, 8),))
    torch.export.save(program, str(tmp_path / "net.pt2"))
    with zipfile.ZipFile(tmp_path / "net.pt2") as old, zipfile.ZipFile(tmp_path / "bad.pt2", "w") as new:
        for name in old.namelist():
            text = old.read(name)
            padded = name.endswith("model.json")
            new.writestr(name, text[:-1] + b', "x": [' + b"[]," * 3_000_000 + b"[]]}" if padded else text)
    refused(contents_of, tmp_path / "bad.pt2", "C2A307")


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("again", "code"), [(False, "C2A307"), (True, "C2A302")])
def test_functions_that_call_functions_are_not_written_out(tmp_path, again, code):
    """Thirty functions of ONNX that each call the next one twice, or one that calls itself."""
    calls = [*(f"own.f{number}" for number in range(1, 30)), "own.f0" if again else "Relu"]
    opsets = 'opset_import: ["" : 18, "own" : 1]'
    functions = "".join(
        f'<domain: "own", {opsets}> f{number} (x) => (y) {{ z = {called} (x) y = {called} (z) }}'
        for number, called in enumerate(calls)
    )
    graph = "g (float[1, 3, 4, 4] x) => (float[1, 3, 4, 4] y) { y = own.f0 (x) }"
    model = onnx.parser.parse_model(f"<ir_version: 8, {opsets}> {graph} {functions}")
    onnx.save(model, tmp_path / "functions.onnx")
    refused(load, tmp_path / "functions.onnx", code)
