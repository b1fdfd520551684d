"""A format of exported programs is one entry of a table: a toy one is written, run, and refused if it is wrong."""

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.errors import CheckpointError
from conv2attn.files import saving
from conv2attn.suffixes import EXPORTS, NETWORK_SUFFIXES, Export


@pytest.fixture
def toy(monkeypatch):
    """A format .toy that keeps the code of torch.export under another name."""
    functions = SimpleNamespace(write=EXPORTS[".pt2"].write, run=EXPORTS[".pt2"].run)

    def write(program, path, notes):
        torch.export.save(program, path.with_name(path.name + ".pt2"))
        path.write_text(str(sorted(notes)))

    def run(path, image):
        return torch.export.load(path.with_name(path.name + ".pt2")).module()(image) * functions.factor

    functions.write, functions.run, functions.factor = write, run, 1.0
    monkeypatch.setitem(sys.modules, "toy_format", functions)
    monkeypatch.setitem(EXPORTS, ".toy", Export("conv", "toy_format:write", "toy_format:run"))
    monkeypatch.setattr(saving, "NETWORK_SUFFIXES", (*NETWORK_SUFFIXES, ".toy"))
    return functions


def test_a_format_is_one_entry(toy, tmp_path):
    network = conv2attn.convert(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()))
    notes = conv2attn.save(network, tmp_path / "net.toy", example_input=(3, 6, 7))
    assert notes[0] == "free sizes: batch and sides"
    assert "torch" in (tmp_path / "net.toy").read_text()
    toy.factor = 1.01
    with pytest.raises(CheckpointError, match="C2A309 the file differs by"):
        conv2attn.save(network, tmp_path / "wrong.toy", example_input=(3, 6, 7))
    assert not (tmp_path / "wrong.toy").exists()


def test_every_format_is_a_suffix_of_networks():
    assert set(EXPORTS) <= set(NETWORK_SUFFIXES)
