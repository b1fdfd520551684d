"""heads and recover from the command line: what they answer, and what cannot be asked."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from attentions import OFFSETS, hard, soft
from commands import call, refused
from torch import nn

import conv2attn
from conv2attn import plots
from conv2attn.span.graded_facts.fact_table import FACTS

ROOT = Path(conv2attn.__file__).parent.parent


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Files that the commands of the page read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    np.savez("heads.npz", first=hard((6, 6), OFFSETS), second=soft((6, 6), 1.0))
    conv2attn.save(conv2attn.convert(nn.Conv2d(2, 3, 3, padding=1, stride=2)), "layer.pt")
    return tmp_path


@pytest.mark.parametrize("width", [40, 80, 200])
def test_every_definition_of_a_column_is_whole_at_any_width(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    told = call("heads", "--columns").stdout
    assert max(map(len, told.splitlines())) <= width
    for fact in FACTS:
        assert " ".join(f"{fact.title}: {fact.meaning}".split()) in " ".join(told.split())
        assert fact.source in " ".join(told.split())


def test_the_answer_for_a_network_fits_a_screen(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    torch.save([torch.softmax(torch.randn(2, 3, 10, 10), -1)] * 12, "twelve.pt")
    lines = call("heads", "twelve.pt", "--extra-tokens", 1).stdout.splitlines()
    assert len(lines) <= 22  # of the 24 of a terminal
    assert all(len(line) <= 80 for line in lines)
    answer = call("check-span", "twelve.pt", "--extra-tokens", 1).stdout.splitlines()
    assert answer.index("") <= 4
    assert len(answer) <= 32


def test_a_head_that_reads_the_leading_token_alone_has_no_peak():
    attention = np.zeros((2, 10, 10))
    attention[0, :, 0], attention[1, :, 5] = 1, 1
    np.save("leading.npy", attention)
    found = call("heads", "leading.npy", "--extra-tokens", 1, "--verbose", "--format", "markdown").stdout
    lines = [line.split("|")[1:6] for line in found.splitlines() if line.startswith("| attention |")]
    peaks = {head.strip(): (peak.strip(), mass.strip()) for _, head, _, peak, mass in lines[-2:]}
    assert peaks["0"] == ("-", "0%")
    assert peaks["1"][0] != "-"


def test_what_is_recovered_is_the_layer():
    assert call("recover", "layer.pt", "--grid", "7x8", "-o", "found.pt").exit_code == 0
    found = torch.load("found.pt")["layers"]["attention"]
    layer = conv2attn.load("layer.pt")
    conv = nn.Conv2d(2, 3, 3, padding=1, stride=2)
    conv.load_state_dict(found["state"])
    image = torch.randn(1, 2, 7, 8)
    torch.testing.assert_close(conv(image), layer(image))
    assert found["share"] == 1


def test_facts_as_json_and_csv():
    body = json.loads(call("heads", "heads.npz", "--format", "json").stdout)
    assert [layer["name"] for layer in body["layers"]] == ["first", "second"]
    assert len(call("heads", "heads.npz", "--format", "csv", "--only", "second").stdout.splitlines()) == 10


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["heads", "examples/resnet18.pt"], "C2A501"),
        (["heads", "heads.npz", "--inputs", "heads.npz"], "C2A004 --inputs"),
        (
            ["heads", "heads.npz", "--only", "third"],
            "C2A008 the pattern 'third' fits no layer that attends. There are: first, second.",
        ),
        (["recover", "heads.npz", "-o", "found.pt"], "C2A505"),
        (["recover", "layer.pt", "-o", "layer.pt"], "C2A004"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(arguments, match):
    result = call(*arguments)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert match in result.stderr
    assert not Path("found.pt").exists()


def test_panels_of_displacements_have_one_scale_the_query_the_kind_and_the_kernel_s_box():
    report = conv2attn.heads({"first": hard((6, 6), OFFSETS), "second": soft((6, 6), 1.0)[:4]}, grid=(6, 6))
    figure = plots.draw_facts(report)
    panels = [axes for axes in figure.axes if axes.get_images()]
    assert len(panels) == 13
    told = [head for layer in report.layers for head in layer.heads]
    for panel, head in zip(panels, told, strict=True):
        image = panel.get_images()[0].get_array()
        place = np.unravel_index(image.argmax(), image.shape)
        assert tuple(int(at) - side // 2 for at, side in zip(place, image.shape, strict=True)) == head.peak
        assert panel.get_images()[0].get_clim() == pytest.approx((0, max(each.peak_mass for each in told)))
        (query,) = panel.lines
        assert (query.get_xdata(), query.get_ydata()) == ([0], [0])
        assert panel.get_title() == f"{head.head} {head.kind}\nmax {head.peak_mass:.2g}"
        (box,) = panel.patches
        assert (box.get_x(), box.get_y(), box.get_width(), box.get_height()) == (-1.5, -1.5, 3, 3)
    assert panels[0].get_images()[0].get_array().shape == (7, 7)
    assert "3x3 convolution" in figure.get_suptitle()
    assert "share of attention" in [axes.get_ylabel() for axes in figure.axes]  # of the colour bar


@pytest.mark.parametrize("kernel", [1, (1, 3), 3])
def test_neither_the_title_of_a_picture_nor_its_inputs_are_cut(kernel):
    network = nn.Sequential(conv2attn.convert(nn.Conv2d(3, 2, kernel)))
    report = conv2attn.heads(network, torch.rand(2, 3, 6, 6))
    figure = plots.draw_facts(report)
    figure.draw_without_rendering()
    title, inputs = figure.texts
    assert "explains 100% of" in " ".join(title.get_text().split())
    assert report.inputs in " ".join(inputs.get_text().split())
    for text in (title, inputs):
        box = text.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.width


@pytest.mark.parametrize(
    ("front", "word", "file"),
    [
        (nn.Embedding(9, 8), "ids", "ids.npy"),
        (nn.Conv2d(3, 8, 1), "images", "images"),
        (nn.Linear(3, 8), "inputs", "inputs.npy"),
    ],
)
def test_a_network_that_was_not_read_says_what_to_pass_in_the_words_of_the_caller(front, word, file):
    network = nn.Sequential(front, nn.MultiheadAttention(8, 2, batch_first=True)).eval()
    said = str(conv2attn.heads(network))
    assert f"pass example_input={word}, and attention is captured as the network runs" in " ".join(said.split())
    assert "--" not in said
    torch.save(network, "network.pt")
    found = call("heads", "network.pt")
    assert found.exit_code == 3
    assert f"pass --inputs {file}, and attention is captured as the network runs" in " ".join(found.stdout.split())
    assert "example_input" not in found.stdout
    refused("check-span", "network.pt", match=f"Pass {word} with --inputs")


def test_a_network_that_was_read_is_not_told_what_to_pass():
    network = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    assert not conv2attn.heads(network, torch.rand(2, 9, 8), grid=(3, 3)).needed
    assert "example_input" not in str(conv2attn.heads(hard((6, 6), OFFSETS)))
