"""The still picture of a photo: lit where heads look, and a frame around the token from which they do."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from commands import call, refused
from lab.explore.cases import Transformer
from torch import nn

from conv2attn.lab.explore import photo_picture

SIDES, PIXELS = (4, 5), 6
LOOKS = {0: (1, 3), 1: (3, 0)}
"""The token that each head looks at from the middle, which is (2, 2)."""


def attending():
    """Heads behind one leading token, each one-hot at its token for every query."""
    attention = torch.zeros(len(LOOKS), 21, 21)
    for head, (row, column) in LOOKS.items():
        attention[head, :, 1 + row * SIDES[1] + column] = 1
    attention[:, 1 + 2 * SIDES[1] + 2] = (
        attention[:, 1 + 2 * SIDES[1] + 2].clone() * 0.25
    )  # the rest is the leading one's
    return attention


@pytest.mark.parametrize("head", LOOKS)
def test_a_panel_is_lit_where_its_head_looks_and_framed_at_the_query(head):
    image = torch.full((1, 3, SIDES[0] * PIXELS, SIDES[1] * PIXELS), 0.5)
    image[:, :, 0, 0], image[:, :, 0, 1] = 0, 1  # so that grey stays grey
    figure = photo_picture({"blocks.0": (attending(), SimpleNamespace(sides=SIDES, leading=1))}, image)
    panel = figure.axes[1 + head]
    shown = np.asarray(panel.images[0].get_array())[..., 0]
    light = shown.reshape(SIDES[0], PIXELS, SIDES[1], PIXELS).mean((1, 3))
    assert np.unravel_index(light.argmax(), SIDES) == LOOKS[head]
    assert np.sum(light > light.max() / 2) == 1
    assert panel.get_title() == f"head {head}: max 0.25"
    (frame,) = panel.patches
    assert (frame.get_x() + 0.5, frame.get_y() + 0.5) == (2 * PIXELS, 2 * PIXELS)
    assert (frame.get_width(), frame.get_height()) == (PIXELS, PIXELS)


def in_colour():
    """The transformer of the cases, on images in colour."""
    network = Transformer(1)
    network.embed = nn.Conv2d(3, 8, 1)
    return network.eval()


def test_the_command_draws_a_photo_and_refuses_what_is_none(tmp_path):
    torch.save(in_colour().state_dict(), tmp_path / "net.pt")
    (tmp_path / "factory.py").write_text(
        "from torch import nn\nfrom lab.explore.cases import Transformer\n\n\ndef build():\n"
        "    network = Transformer(1)\n    network.embed = nn.Conv2d(3, 8, 1)\n    return network\n"
    )
    np.save(tmp_path / "photo.npy", np.random.default_rng(0).random((1, 3, 7, 9), dtype=np.float32))
    drawn = call(
        *("explore", tmp_path / "net.pt", "--arch", f"{tmp_path / 'factory.py'}:build"),
        *("--inputs", tmp_path / "photo.npy", "-o", tmp_path / "photo.png"),
    )
    assert drawn.exit_code == 0, drawn.output
    assert (tmp_path / "photo.png").read_bytes().startswith(b"\x89PNG")
    torch.save(nn.Conv2d(3, 2, 3), tmp_path / "conv.pt")
    refused("explore", tmp_path / "conv.pt", "-o", tmp_path / "none.png", match="C2A501")
