"""Files are written whole or not at all, and replace others on request only."""

import os
import pickle

import pytest
import torch
from safetensors.torch import save_file

from conv2attn.errors import CheckpointError
from conv2attn.files import contents_of, write_atomically, write_text_atomically

STATE = {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.tensor([0.5, float("nan")])}


def test_written_files_are_read_back(tmp_path):
    path = tmp_path / "file.pt"
    write_atomically(path, STATE)
    back = torch.load(path, weights_only=True)
    assert all(torch.equal(back[name].view(torch.int32), each.view(torch.int32)) for name, each in STATE.items())
    write_text_atomically(tmp_path / "report.txt", f"Δ = key − query\n{os.fsdecode(bytes([255]))}")
    assert (tmp_path / "report.txt").read_bytes() == "Δ = key − query\n\\udcff".encode()
    assert {entry.name for entry in tmp_path.iterdir()} == {"file.pt", "report.txt"}


def test_an_existing_file_is_replaced_only_on_request(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(CheckpointError, match=r"C2A305 .* exists"):
        write_text_atomically(path, "new")
    with pytest.raises(CheckpointError, match=r"C2A305 .* exists"):
        write_atomically(path, STATE)
    assert path.read_text() == "old"
    write_text_atomically(path, "new", force=True)
    assert path.read_text() == "new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.txt"]


def test_a_file_that_appears_while_writing_is_not_overwritten(tmp_path, monkeypatch):
    path = tmp_path / "file.txt"
    monkeypatch.setattr(os, "fsync", lambda _: path.write_text("theirs"))
    with pytest.raises(CheckpointError, match=r"C2A305 .* exists"):
        write_text_atomically(path, "ours")
    assert [entry.read_text() for entry in tmp_path.iterdir()] == ["theirs"]


@pytest.mark.parametrize("force", [False, True])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, force):
    path = tmp_path / "file.pt"
    if force:
        path.write_text("old")
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        write_atomically(path, {"weight": STATE["weight"], "code": lambda: None}, force=force)
    assert [entry.read_text() for entry in tmp_path.iterdir()] == ["old"] * force


def test_an_error_without_a_message_is_named_by_its_class(tmp_path, monkeypatch):
    """Once the first line of an empty message was asked for, and an IndexError left the reader and the writer."""

    def fail(*_, **options):
        raise OSError

    save_file(STATE, tmp_path / "net.safetensors")
    monkeypatch.setattr("conv2attn.files.torch_files.safe_open", fail)
    with pytest.raises(CheckpointError, match=r"C2A302 .*damaged \(OSError\)"):
        contents_of(tmp_path / "net.safetensors")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(CheckpointError, match=r"C2A301 .* cannot be written: OSError"):
        write_text_atomically(tmp_path / "report.txt", "text")
