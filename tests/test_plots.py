"""Pictures: their files, and certificates drawn as their numbers."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import call, refused

import conv2attn
from conv2attn import plots
from conv2attn.errors import UsageError
from conv2attn.verdicts import Verdict

EXAMPLES = Path(__file__).parent.parent / "examples"
STARTS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.mark.parametrize("suffix", STARTS)
def test_the_command_writes_a_picture_as_its_suffix_says_beside_its_report(tmp_path, suffix):
    heads, file = tmp_path / "heads.npy", tmp_path / f"heads.{suffix}"
    np.save(heads, np.eye(25)[None])
    asked = "heads", heads, "--grid", "5x5"
    plain, drawn = call(*asked), call(*asked, "--plot", file)
    assert (drawn.exit_code, drawn.stdout) == (plain.exit_code, plain.stdout)
    assert file.read_bytes().startswith(STARTS[suffix])
    assert call(*asked, "--plot", file).exit_code == 2
    assert call(*asked, "--plot", file, "--force").exit_code == 0


@pytest.mark.parametrize(
    ("file", "missing", "match"),
    [
        ("heads.gif", False, "has none of the suffixes .png, .svg, .pdf"),
        ("heads.png", True, "pip install 'conv2attn[plot]'"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(tmp_path, monkeypatch, file, missing, match):
    if missing:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
    refused("heads", EXAMPLES / "attention-quadratic.pt", "--plot", tmp_path / file, match=match)
    assert not (tmp_path / file).exists()


def certificate(alpha):
    """A certificate of a padded and an unpadded convolution; refuted at a small alpha."""
    torch.manual_seed(0)
    original = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(3, 2, 1))
    return conv2attn.certify(original, conv2attn.convert(original, alpha=alpha), input_size=(2, 6, 7))


@pytest.mark.parametrize("alpha", ["auto", 2.0])
def test_a_certificate_is_drawn_as_its_numbers(alpha):
    """One line a layer: a dot at the measured error, hollow at 0, and a bar at the bound."""
    found = certificate(alpha)
    (panel,) = plots.draw_certificate(found).axes
    assert [label.get_text() for label in panel.get_yticklabels()] == [row.name for row in found.rows]
    for place, row in enumerate(found.rows):
        lines = [line for line in panel.lines if line.get_marker() != "None" and line.get_ydata()[0] == place]
        drawn = {line.get_marker(): line for line in lines}
        assert drawn["|"].get_xdata() == [row.bound]
        assert (drawn["o"].get_xdata() == [row.max_error]) == (row.max_error > 0)
        assert (drawn["o"].get_markerfacecolor() == "white") == (row.max_error == 0)
        if row.max_error == 0:  # it stands at a tick of its own, which says 0
            zero = [label.get_text() for label in panel.get_xticklabels()][
                list(panel.get_xticks()).index(drawn["o"].get_xdata()[0])
            ]
            assert zero == "0"
        assert (drawn["o"].get_color() == "tab:red") == (row.verdict is Verdict.REFUTED)


def test_a_certificate_without_layers_is_not_drawn():
    with pytest.raises(UsageError, match="no layer was compared"):
        plots.draw_certificate(conv2attn.certify(torch.nn.ReLU(), torch.nn.ReLU(), input_size=(2, 3)))


def test_verify_draws_its_certificate(tmp_path):
    network = tmp_path / "network.pt"
    torch.save(torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3), torch.nn.ReLU()), network)
    for file, code in (("errors.pdf", 0), ("errors.pdf", 2), ("errors.gif", 2)):
        plot = ["--input-size", "3x32x40", "--plot", tmp_path / file]
        assert call("verify", network, network, *plot).exit_code == code
    assert (tmp_path / "errors.pdf").read_bytes().startswith(STARTS["pdf"])
