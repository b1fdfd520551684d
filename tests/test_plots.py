"""Pictures of attention: panels where the heads are, attention where the offsets are, circles of the right size."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import call, refused
from matplotlib.patches import Circle
from mpmath import mp, quad

import conv2attn
from conv2attn import plots
from conv2attn.errors import UsageError
from conv2attn.layers.attention import Encoding, MultiHeadSelfAttention
from conv2attn.networks import attention_layers
from conv2attn.theory.basis import Shift, as_matrix
from conv2attn.verdicts import Verdict

EXAMPLES = Path(__file__).parent.parent / "examples"
STARTS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def shifting_heads(offsets, sides):
    """Heads that read one pixel where it is on the grid, and themselves elsewhere."""
    heads = as_matrix(Shift(tuple(offsets)), sides).numpy()
    return heads + (1 - heads.sum(-1))[..., None] * np.eye(math.prod(sides))


def darkest(panel):
    """(row, column) in the axes of the panel of its darkest pixel."""
    image = panel.get_images()[0]
    left, right, bottom, top = image.get_extent()
    row, column = np.unravel_index(image.get_array().argmax(), image.get_array().shape)
    high, wide = image.get_array().shape
    place = top + (row + 0.5) * (bottom - top) / high, left + (column + 0.5) * (right - left) / wide
    return tuple(round(coordinate, 9) for coordinate in place)


def test_the_command_writes_a_picture_beside_its_report(tmp_path):
    heads, file = tmp_path / "heads.npy", tmp_path / "heads.svg"
    np.save(heads, shifting_heads([(0, 1)], (5, 5)))
    plain = call("check-span", heads, "--grid", "5x5")
    drawn = call("check-span", heads, "--grid", "5x5", "--plot", file)
    assert (drawn.exit_code, drawn.stdout) == (plain.exit_code, plain.stdout)
    assert file.read_bytes().startswith(STARTS["svg"])
    assert call("check-span", heads, "--grid", "5x5", "--plot", file).exit_code == 2
    assert call("check-span", heads, "--grid", "5x5", "--plot", file, "--force").exit_code == 1


@pytest.mark.parametrize("suffix", STARTS)
def test_a_picture_is_what_its_suffix_says(tmp_path, suffix):
    figure = plots.draw_heads([plots.heads_around("layer", shifting_heads([(0, 1)], (3, 4)), (3, 4))])
    plots.write(figure, tmp_path / f"heads.{suffix}")
    assert (tmp_path / f"heads.{suffix}").read_bytes().startswith(STARTS[suffix])


def test_arrays_are_drawn_without_their_extra_tokens(tmp_path):
    heads = np.zeros((1, 26, 26))
    heads[:, 0, 0] = 1
    heads[:, 1:, 1:] = shifting_heads([(0, 1)], (5, 5))
    np.save(tmp_path / "heads.npy", heads)
    assert (
        call("check-span", tmp_path / "heads.npy", "--extra-tokens", "1", "--plot", tmp_path / "heads.svg").exit_code
        == 1
    )
    assert (tmp_path / "heads.svg").read_bytes().startswith(b"<?xml")


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
    refused("check-span", EXAMPLES / "attention-quadratic.pt", "--plot", tmp_path / file, match=match)
    assert not (tmp_path / file).exists()


@pytest.mark.parametrize("sides", [(5, 7), (6, 4)])
def test_the_darkest_pixel_is_the_offset_that_the_head_reads(sides):
    offsets = [(-1, 0), (0, 1), (1, -2)]
    layer = plots.heads_around("layer", shifting_heads(offsets, sides), sides)
    panels = plots.draw_heads([layer]).axes
    assert len(panels) == len(offsets)
    assert [darkest(panel) for panel in panels] == offsets
    assert {panel.get_ylim() for panel in panels} == {(sides[0] - sides[0] // 2 - 0.5, -(sides[0] // 2) - 0.5)}
    swapped = plots.heads_around("layer", shifting_heads(offsets, sides), sides[::-1])
    assert [darkest(panel) for panel in plots.draw_heads([swapped]).axes] != offsets


def test_a_panel_for_each_head_of_each_layer():
    layers = [plots.heads_around(str(heads), shifting_heads([(0, 1)] * heads, (3, 4)), (3, 4)) for heads in (2, 3, 1)]
    panels = plots.draw_heads(layers).axes
    assert [panel.get_ylabel() for panel in panels if panel.get_ylabel()] == ["2", "3", "1"]
    assert len(panels) == 6


@pytest.mark.parametrize(("sides", "offset", "expected"), [((7,), (2,), (0, 2)), ((3, 4, 5), (1, -1, 1), (-1, 1))])
def test_lines_and_volumes_are_drawn_too(sides, offset, expected):
    layer = plots.heads_around("layer", shifting_heads([offset], sides), sides)
    (panel,) = plots.draw_heads([layer]).axes
    assert darkest(panel) == expected


def test_images_are_averaged():
    images = np.stack([shifting_heads([offset], (5, 5)) for offset in ((0, 1), (1, 0), (0, 1))])
    seen = plots.heads_around("layer", images, (5, 5)).attention[0]
    assert (seen[2, 3], seen[3, 2]) == pytest.approx((2 / 3, 1 / 3))


@pytest.mark.parametrize("alpha", [0.3, 1.7, 46.0])
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_the_circle_holds_its_share_of_the_gaussian(alpha, share):
    r = plots.radius(alpha, share)
    within = quad(lambda x: 2 * mp.pi * x * mp.exp(-alpha * x**2), [0, r]) * alpha / mp.pi
    assert float(within) == pytest.approx(share)
    assert float(quad(lambda x: 2 * alpha * x * mp.exp(-alpha * x**2), [0, r * 1.01])) != pytest.approx(share)


def test_circles_stand_where_the_heads_look():
    encoding = Encoding.of("quadratic", [[-1.0, 0.5], [2.0, 0.0]], torch.tensor([0.5, 2.0]))
    layer = MultiHeadSelfAttention(1, 1, encoding=encoding)
    panels = plots.draw_heads([plots.heads_around("layer", layer, (6, 7))]).axes
    for panel, center, alpha in zip(panels, [(-1.0, 0.5), (2.0, 0.0)], [0.5, 2.0], strict=True):
        circles = [patch for patch in panel.patches if isinstance(patch, Circle)]
        assert [(circle.center[1], circle.center[0]) for circle in circles] == [center] * 2
        assert [circle.radius for circle in circles] == pytest.approx([(math.log(n) / alpha) ** 0.5 for n in (2, 10)])
        assert [circle.get_linestyle() for circle in circles] == ["solid", "dotted"]


def test_only_quadratic_heads_have_circles():

    for name, count in (("quadratic", 2), ("learned", 0)):
        layers = attention_layers(conv2attn.load(EXAMPLES / f"attention-{name}.pt"))
        panels = plots.draw_heads([plots.heads_around(key, layer, (4, 4)) for key, layer in layers.items()]).axes
        assert [len(panel.patches) for panel in panels] == [count] * 36


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


@pytest.mark.parametrize(("alpha", "shown"), [(46.0, 3.5), (0.5, 1 + math.sqrt(math.log(10) / 0.5) + 0.5)])
def test_panels_of_quadratic_heads_end_beyond_their_kernel_and_circles_and_at_the_grid(alpha, shown):
    """A kernel of three on 28 pixels was a dot in a white panel."""
    layer = conv2attn.convert(torch.nn.Conv2d(1, 1, 3, padding=1), alpha=alpha)
    shown = max(shown, 3.5)
    for panel in plots.draw_heads([plots.heads_around("layer", layer, (20, 28))]).axes:
        assert (panel.get_xlim(), panel.get_ylim()) == (pytest.approx((-shown, shown)), pytest.approx((shown, -shown)))
    small = plots.draw_heads([plots.heads_around("layer", layer, (3, 28))]).axes[0]
    assert small.get_ylim() == (2.5, -2.5)  # padded by one pixel on each side


def test_a_panel_shows_the_kernel_and_two_pixels_also_where_training_moved_its_centres():
    layer = conv2attn.convert(torch.nn.Conv2d(1, 1, 3, padding=1), alpha=5.0, trainable=True)
    for moved, shown in ((0.1, 3.5), (0.6, 4.5)):
        with torch.no_grad():
            layer.encoding.center *= 1 + moved
        assert plots.draw_heads([plots.heads_around("layer", layer, (20, 28))]).axes[0].get_xlim() == (-shown, shown)
