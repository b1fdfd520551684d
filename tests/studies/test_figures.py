"""Figures: the numbers behind them are those of the heads, and the files are written.

Pictures are checked by the geometry of their panels; the laws of tests/lab are those of training runs.
"""

import math

import numpy as np
import pytest
import torch
from commands import call
from lab.cases import quiet, small
from matplotlib.patches import Ellipse
from PIL import Image

import conv2attn
from conv2attn.errors import UsageError
from conv2attn.lab.data import normalised_images, read_images_of
from conv2attn.lab.training import train
from conv2attn.networks import attention_layers
from studies import figures
from studies.figures import attention_of_query, centers_figure, draw_figures, ellipse, mean_places, reading_order
from studies.paper import paper


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A finished run of each kind whose figures differ."""
    folder = tmp_path_factory.mktemp("runs")
    return {kind: train(small(kind), folder / kind, report=quiet) for kind in ("quadratic", "learned", "resnet")}


@pytest.fixture
def undrawn(monkeypatch):
    """Files of figures are empty: that they are drawn is seen once for every kind of network."""
    monkeypatch.setattr(figures, "write", lambda figure, path, force: path.touch())


@pytest.mark.usefixtures("undrawn")
def test_attention_on_pictures_has_figures_of_their_names(runs, tmp_path):
    """At the size of the data, one by one or with test images."""
    for name in ("cat", "dog"):
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (13, 17, 3), np.uint8)).save(tmp_path / f"{name}.png")
    cat, dog = (str(tmp_path / f"{name}.png") for name in ("cat", "dog"))
    options = ["--average", "1", "--examples", cat, "--examples", "1", "--examples", dog]
    result = call("figures", runs["learned"].folder, "-o", tmp_path / "out", *options, program=paper)
    assert result.exit_code == 0, result.output
    names = {path.stem for path in (tmp_path / "out").iterdir()}
    assert names == {"accuracy", "attention", "factors", "attention-image-1", "attention-cat", "attention-dog"}


@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize("alpha", [0.05, 1.0, 7.5])
def test_circles_of_a_quadratic_head_are_quantiles_of_the_gaussian(share, alpha):
    shape = ellipse(2 * alpha * np.eye(2), share)
    assert shape.semi_axes == pytest.approx([math.sqrt(-math.log(1 - share) / alpha)] * 2)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_ellipses_hold_their_share_of_drawn_points(share):
    generator = np.random.default_rng(0)
    root = np.array([[1.2, 0.3], [-0.4, 0.5]])
    precision = root.T @ root
    points = generator.standard_normal((200_000, 2)) @ np.linalg.inv(root).T
    shape = ellipse(precision, share)
    angle = math.radians(shape.angle)
    along = points @ [math.sin(angle), math.cos(angle)]
    across = points @ [math.cos(angle), -math.sin(angle)]
    inside = (along / shape.semi_axes[0]) ** 2 + (across / shape.semi_axes[1]) ** 2 <= 1
    deviation = math.sqrt(share * (1 - share) / len(points))
    assert abs(inside.mean() - share) < 5 * deviation
    swapped = (across / shape.semi_axes[0]) ** 2 + (along / shape.semi_axes[1]) ** 2 <= 1
    assert abs(swapped.mean() - share) > 20 * deviation


def test_a_head_without_precision_is_drawn_as_a_large_ellipse():
    assert min(ellipse(np.zeros((2, 2)), 0.5).semi_axes) >= 1e4


def test_a_shuffled_kernel_is_read_row_by_row():
    places = np.array([(row, column) for row in (-1, 0, 1) for column in (-1, 0, 1)], dtype=float)
    shuffled = np.random.default_rng(1).permutation(9)
    order = reading_order(places[shuffled] + 0.1)
    assert np.array_equal(places[shuffled][order], places)
    assert sorted(reading_order(np.zeros((5, 2)))) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", ["quadratic", "learned"])
def test_attention_of_a_query_is_the_layers_row(runs, kind):
    network, images = conv2attn.load(runs[kind].network), read_images_of("digits")
    inputs = normalised_images(images.test_pixels[:3], *images.statistics())
    found = attention_of_query(network, inputs, (1, 2))
    assert [*found] == [*attention_layers(network)]
    for name, layer in attention_layers(network).items():
        whole = layer.attention(sides=(4, 4))[0, :, 1 * 4 + 2].reshape(-1, 4, 4)
        assert found[name].shape == (3, 4, 4, 4)
        for image in found[name]:
            np.testing.assert_allclose(image, whole.detach(), atol=1e-7)
    with pytest.raises(UsageError, match="query 4,0 is none of 4x4 tokens"):
        attention_of_query(network, inputs, (4, 0))


def test_mean_places_are_displacements_from_the_query():
    attention = torch.zeros(2, 5, 6)
    attention[0, 1, 4] = 1
    attention[1, 0, 0] = attention[1, 4, 2] = 0.5
    assert mean_places(attention.numpy(), (2, 3)).tolist() == [[-1, 1], [0, -2]]


@pytest.mark.parametrize(("kind", "suffix"), [("quadratic", "png"), ("learned", "svg"), ("resnet", "pdf")])
def test_figures_are_written_for_every_kind(runs, tmp_path, kind, suffix):
    drawn = call(
        "figures", runs[kind].folder, "-o", tmp_path / "out", "--suffix", suffix, "--examples", "1", program=paper
    )
    assert drawn.exit_code == 0, drawn.output
    names = {file.name.removesuffix(f".{suffix}") for file in (tmp_path / "out").iterdir()}
    centers, attention = {"centers", "centers-over-training"}, {"attention", "attention-image-1", "factors"}
    expected = {"quadratic": centers | attention, "learned": attention, "resnet": set()}[kind]
    assert names == {"accuracy"} | expected
    assert all(file.stat().st_size > 1000 for file in (tmp_path / "out").iterdir())


@pytest.mark.usefixtures("undrawn")
def test_each_of_several_runs_has_its_heads(runs, tmp_path):
    both = [runs["quadratic"], runs["learned"]]
    names = {path.name for path in draw_figures(both, tmp_path / "out", average=1, examples=0)}
    expected = {f"{run}-{name}" for run in ("quadratic", "learned") for name in ("attention", "factors")}
    expected |= {"quadratic-centers", "quadratic-centers-over-training"}
    assert names == {f"{name}.png" for name in expected | {"accuracy"}}


def test_circles_near_the_edge_are_whole():
    centers = np.array([[5.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    figure = centers_figure([("layer", centers, np.tile(0.4 * np.eye(2), (3, 1, 1)), [0, 1, 2])], "heads")
    panel = figure.axes[0]
    low, high = sorted(panel.get_xlim())
    for shape in (patch for patch in panel.patches if isinstance(patch, Ellipse)):
        x, y = shape.center
        assert low <= x - shape.width / 2 <= x + shape.width / 2 <= high
        assert low <= y - shape.height / 2 <= y + shape.height / 2 <= high


def test_figures_are_replaced_by_force_alone(runs, tmp_path):
    arguments = ["figures", runs["resnet"].folder, "-o", tmp_path / "out", "--suffix", "svg"]
    assert [call(*arguments, *more, program=paper).exit_code for more in ([], [], ["--force"])] == [0, 2, 0]


REFUSALS = {
    "figures empty -o new": "C2A301 empty/metrics.csv does not exist",
    "figures empty -o new --query 1": "C2A006 --query '1' is not a row and a column. Write 3,4, say",
    "tables --run quadratic": "C2A006 --run 'quadratic' is not MODEL=FOLDER",
    "tables --run quadratic=nothing": "C2A301 nothing is not a folder. Pass the folder of a run",
    "tables --run nothing=empty": "C2A002 'nothing' is no model of the tables",
}


@pytest.mark.parametrize("words", REFUSALS)
def test_a_wrong_call_is_refused_in_one_line(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    result = call(*words.split(), program=paper)
    assert (result.exit_code, result.stdout) == (2, "")
    assert REFUSALS[words] in result.stderr
