"""Nothing is written under a name that lies."""

import pytest
import torch
from commands import call
from torch import nn

import conv2attn
from conv2attn.files import kinds, load, save


def test_a_file_named_safetensors_is_one(tmp_path):
    from safetensors import safe_open

    layer = conv2attn.convert(nn.Conv2d(2, 3, 3))
    save(layer, tmp_path / "layer.safetensors")
    with safe_open(tmp_path / "layer.safetensors", "pt") as file:
        assert set(file.keys()) == set(layer.state_dict())
    image = torch.randn(1, 2, 6, 7)
    assert torch.equal(load(tmp_path / "layer.safetensors")(image), layer(image))


@pytest.mark.parametrize("before", ["", "a", "aa", "aaa"])
def test_a_text_is_one_wherever_in_a_letter_its_head_ends(tmp_path, before):
    path = tmp_path / "notes.txt"
    path.write_text(before + "\N{MUSICAL SYMBOL G CLEF}" * 200, encoding="utf-8")
    assert kinds.kind_of_path(path) is kinds.TEXT
    path.write_bytes(path.read_bytes()[:511])
    assert (kinds.kind_of_path(path) is kinds.TEXT) == (before == "aaa")


@pytest.mark.parametrize("command", [("convert",), ("inspect",), ("heads",), ("check-span",)])
def test_a_kind_of_file_is_one_line_of_its_table(tmp_path, monkeypatch, command):
    """Planted: a kind whose first bytes nobody knows; every command says what it is, and what to do."""
    path = tmp_path / "net.toy"
    path.write_bytes(b"TOY!" + bytes(100))
    monkeypatch.setattr(kinds, "KINDS", [*kinds.KINDS, kinds.Kind("toy file", "Play with it.", (b"TOY!",))])
    done = call(command[0], str(path), *command[1:])
    assert "toy file" in done.output
    assert "Play with it." in done.output
