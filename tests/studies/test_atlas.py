"""The atlas: measured, failed, twins, what replacing heads costs, likeness, and the page of the documentation."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from conv2attn import heads
from conv2attn.errors import CheckpointError
from conv2attn.span.graded_facts import LayerFacts
from studies import atlas as study
from studies.atlas import (
    answer_table,
    correlations,
    counts_of,
    entries_of,
    likeness,
    likeness_table,
    loss_table,
    losses,
    replace_heads,
    sparkline,
    tables_of,
    tensor_digest,
    tried,
    with_error,
)

ROOT = Path(__file__).parents[2]
THRESHOLDS = "[thresholds]\nshift = 0.5\npartial = 0.25\nconvolution = 0.5\nkernels = [3]\nearly = 0.34\n"
FACTORY = """
import os
import torch

def shifted(seed=None):
    torch.manual_seed(0)
    if seed is not None:
        return {"a": torch.softmax(0.01 * torch.randn(4, 2, 6, 6), -1), "b": torch.full((4, 2, 6, 6), 1 / 6)}
    one = torch.eye(6).roll(1, 1).expand(4, 2, 6, 6).clone()
    return {"a": one, "b": torch.softmax(3 * torch.randn(4, 2, 6, 6), -1)}

def broken():
    raise RuntimeError("no weights here")

def killed():
    os.kill(os.getpid(), 9)
"""
LINE = '\n[[model]]\nname = "Tiny"\nkind = "text"\nsource = "made.py:shifted"\ngrid = "line"\n'


@pytest.fixture
def listed(tmp_path):
    """A list of one model, and the file of its factories."""
    (tmp_path / "made.py").write_text(FACTORY)
    path = tmp_path / "list.toml"
    path.write_text(THRESHOLDS + LINE)
    return path


def ended_with(monkeypatch, listed, output):
    """The exit code of the program on a list."""
    monkeypatch.setattr("sys.argv", ["atlas.py", str(listed), "-o", str(output)])
    with pytest.raises(SystemExit) as ended:
        study.main()
    return ended.value.code


@pytest.mark.slow
def test_a_model_and_its_twin_are_measured_and_one_that_is_killed_is_named(listed, tmp_path, monkeypatch):
    killed = LINE.replace("Tiny", "Killed").replace("shifted", "killed") + "twin = false\n"
    listed.write_text(THRESHOLDS + killed + LINE)
    assert ended_with(monkeypatch, listed, tmp_path / "out") == 3
    whole = json.loads((tmp_path / "out" / "atlas.json").read_text())
    assert [model["name"] for model in whole["models"]] == ["Tiny", "Tiny (untrained)"]
    assert "terminated abruptly" in whole["failed"].pop("Killed")
    assert not whole["failed"]
    trained, twin = (model["counts"] for model in whole["models"])
    assert trained["early"] == {"heads": 2, "shift": 2, "partial": 2, "itself": 0}
    assert trained["late"]["shift"] == twin["all"]["shift"] == 0
    rows = list(csv.DictReader((tmp_path / "out" / "heads.csv").read_text().splitlines()))
    assert len(rows) == 8
    assert rows[0]["peak"] == "1"
    page = (tmp_path / "out" / "index.md").read_text()
    assert "| Tiny | text | 4 | 2 (50%) |" in page
    assert "at least 50% of its attention" in page
    assert "- Killed: A process" in page


def test_a_factory_that_fails_has_its_error_in_words(listed, monkeypatch):
    monkeypatch.setattr("sys.path", [*sys.path])
    listed.write_text(THRESHOLDS + LINE.replace("shifted", "broken"))
    assert tried(entries_of(listed)[0][0]) == "RuntimeError: no weights here"


def test_two_models_are_not_written_to_one_file(listed):
    listed.write_text(THRESHOLDS + LINE + LINE.replace("Tiny", "tiny!"))
    with pytest.raises(CheckpointError, match=r"C2A303 two models of .* would be written to tiny\.json"):
        entries_of(listed)


@pytest.mark.parametrize(("text", "code"), [(None, "C2A301"), ("model = [", "C2A303"), ("model = []", "C2A303")])
def test_a_file_that_is_no_list_of_models_ends_in_a_sentence(text, code, tmp_path, monkeypatch, capsys):
    if text is not None:
        (tmp_path / "list.toml").write_text(text)
    assert ended_with(monkeypatch, tmp_path / "list.toml", tmp_path / "out") == 2
    assert code in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_digest_of_weights_reads_every_number():
    network = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
    before = tensor_digest(network.state_dict())
    assert tensor_digest(network.state_dict()) == before
    for tensor in network.state_dict().values():
        old = tensor.clone()
        tensor.add_(1)
        assert tensor_digest(network.state_dict()) != before
        tensor.copy_(old)
    assert tensor_digest([torch.zeros(2, 3)]) != tensor_digest([torch.zeros(3, 2)])


def test_a_head_that_attends_to_itself_is_not_shift_like():
    """The planted error: counting every displacement, zero included, gives two shifts."""
    drawn = [([0, 0], 0.9), ([0, 1], 0.9), ([-1, 0], 0.3), ([0, 0], 0.3)]
    drawn_heads = [{"peak": peak, "peak_mass": mass} for peak, mass in drawn]
    counts = counts_of(drawn_heads, {"shift": 0.5, "partial": 0.25})
    assert counts == {"heads": 4, "shift": 1, "partial": 2, "itself": 1}


def test_means_have_the_standard_error_over_models():
    assert with_error([0.1, 0.3]) == "20.0% ± 10.0% (2)"
    assert with_error([0.5]) == "50.0%"
    assert with_error([]) == "-"
    assert sparkline([0, 0.5, 1, None]) == " ▄█·"
    assert "-" in answer_table([], [])


def test_the_page_of_the_documentation_is_the_one_that_was_measured():
    page, results = (ROOT / "docs/atlas.md").read_text(), ROOT / "examples/atlas/results"
    measured = [
        line
        for name in ("index.md", "controls.md", "replaced/index.md")
        for line in (results / name).read_text().splitlines()
    ]
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(rows) > 45
    assert not [row for row in rows if row not in measured]
    held, stated = (ROOT / "examples/atlas/atlas.toml").read_text(), entries_of(ROOT / "examples/atlas/atlas.toml")[1]
    assert stated == {"shift": 0.5, "partial": 0.25, "convolution": 0.5, "kernels": [3, 7], "early": 0.3334}
    assert held.count("[[model]]") == 10


def test_the_controls_are_those_of_their_runs():
    """Means, deviations, Student's t and Holm's correction, formed anew from each run."""
    found = json.loads((ROOT / "examples/atlas/results/controls.json").read_text())
    values = {}
    for name, runs in found["controls"].items():
        assert len(runs) == 10
        for measure, own in found["trained"].items():
            numbers = [run[measure] for run in runs]
            mean = sum(numbers) / 10
            spread = (sum((x - mean) ** 2 for x in numbers) / 9) ** 0.5
            stated = found["compared"][f"{name}, {measure}"]
            assert stated[:2] == pytest.approx([mean, spread], rel=1e-4, abs=1e-6)
            if spread:
                values[name, measure] = 2 * stats.t.sf(abs(own - mean) / (spread * 1.1**0.5), 9)
            else:
                assert stated[2] is None
    for (name, measure), value in values.items():
        smaller = [other for other in values.values() if other <= value]
        holm = max(min(1, other * sum(each >= other for each in values.values())) for other in smaller)
        assert found["compared"][f"{name}, {measure}"][2] == pytest.approx(holm, rel=1e-2, abs=1e-12)
    assert found["entropy apart"] < 1e-3


SIDES, COUNT, WIDTH = (4, 5), 20, 8


class Attention(nn.Module):
    """Head 0 reads by displacement on a torus, mostly the token to its right; head 1 by content and a bias."""

    def __init__(self, content, bias):
        super().__init__()
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.content, self.bias = content, bias
        right = torch.arange(COUNT).reshape(SIDES).roll(-1, 1).flatten()
        self.register_buffer("moved", nn.functional.one_hot(right, COUNT).float())

    def forward(self, tokens):
        query, key, value = self.qkv(tokens).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        by_content = self.content * query[:, 1] @ key[:, 1].mT + self.bias * self.moved.mT
        scores = torch.stack([6 * self.moved.expand(len(tokens), -1, -1), by_content], 1)
        return tokens + self.proj((torch.softmax(scores, -1) @ value).transpose(1, 2).flatten(2))


class Planted(nn.Module):
    """A grid of 4x5 tokens and one layer of both heads."""

    def __init__(self, content=6.0, bias=0.0):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, WIDTH, 4, 4), nn.Linear(WIDTH, 5)
        self.attention = Attention(content, bias)

    def forward(self, image):
        return self.head(self.attention(self.stem(image).flatten(2).mT).flatten(1).unflatten(1, (COUNT, -1)).amax(1))


@pytest.fixture(scope="module")
def replaced():
    """The report on the planted network, and its document with what replacing costs."""
    torch.manual_seed(0)
    network, images = Planted().eval(), torch.randn(8, 3, 16, 20)
    report = heads(network, images)
    return network, images, replace_heads(network, images, report)


def test_a_positional_head_costs_nothing_and_a_head_of_content_costs(replaced):
    """The planted heads: one is its table exactly, one is not, and has its kind decided by the loss."""
    _, _, body = replaced
    positional, content = body["layers"][0]["heads"]
    for by in ("position", "mean"):
        assert max(positional["replaced"][by]) < 1e-5
        assert min(content["replaced"][by]) > 1e-2
    assert min(positional["replaced"]["uniform"]) > 1e-2
    assert (positional["kind"], content["kind"]) == ("shift", "content")
    loss = losses(body)
    assert loss.keys() == {"first"}
    assert (loss["first"]["heads"], loss["first"]["kept"]) == (2, 1)
    assert loss["first"]["at once"]["position"] == pytest.approx(content["replaced"]["position"], rel=1e-3)
    half = [x / 2 for x in content["replaced"]["mean"]]
    assert loss["first"]["alone"]["mean"] == pytest.approx(half, rel=1e-3, abs=1e-5)
    row = loss_table([{"name": "Planted", "losses": loss}]).splitlines()[2]
    assert row.startswith("| Planted | first | alone | 1 of 2 | ")


def test_costs_are_those_of_the_command(replaced):
    network, images, body = replaced
    for by in ("position", "shift", "mean", "uniform"):
        for head, document in zip(
            heads(network, images, replace=by).layers[0].heads, body["layers"][0]["heads"], strict=True
        ):
            changes = document["replaced"][by]
            assert sum(changes) / len(changes) == pytest.approx(head.replaced.effect.change, rel=1e-4, abs=1e-6)
            assert document["kind"] == head.kind


def test_a_head_that_loses_little_with_what_varies_is_not_of_content():
    torch.manual_seed(0)
    network, images = Planted(content=0.5, bias=2.0).eval(), torch.randn(8, 3, 16, 20)
    body = replace_heads(network, images, heads(network, images))
    head = heads(network, images, replace="mean").layers[0].heads[1]
    assert 0.1 < head.replaced.lost < 0.5
    assert body["layers"][0]["heads"][1]["kind"] == head.kind == "mixed"


def test_a_model_whose_heads_are_not_replaced_has_no_row():
    assert losses({"layers": [{"name": "a", "heads": [{"replaced": None}]}], "together": None}) == {}
    assert loss_table([{"name": "a", "losses": {}}]) == likeness_table({}) == ""


def test_tables_are_means_over_the_pairs_of_a_displacement():
    """The planted error, a mean over all queries, falls off where fewer queries have the displacement."""
    shift = torch.eye(30).roll(1, 1)
    shift[-1] = shift[:-1].mean(0)
    (layer,) = heads({"a": torch.stack([torch.full((30, 30), 1 / 30), shift])[None]}, grid=(30,)).layers
    even, moved = tables_of(layer)
    assert even == pytest.approx([1 / 30] * 49)
    assert moved[25] == pytest.approx(1)
    assert max(moved[:24]) == pytest.approx(1 / 29 / 6)  # one of the six pairs at -24
    assert tables_of(heads({"a": torch.full((1, 2, 24, 24), 1 / 24)}, grid=(24,)).layers[0]) is None
    assert tables_of(LayerFacts("unread")) is None


def model(name, trained, tables):
    """A model of one layer on a line."""
    return {
        "model": name,
        "trained": trained,
        "layers": [{"grid": [30], "tables": tables}, {"grid": [], "tables": None}],
    }


def test_likeness_is_the_largest_correlation_beside_that_with_twins():
    one, other, none = [0.0, 1, 0, 0], [0.0, 0, 3, 0], [1.0, 1, 1, 1]
    models = [model("a", True, [one, other]), model("a", False, [none, none])]
    models += [model("b", True, [[5.0, 7, 5, 5]]), model("b", False, [one])]
    found = likeness(models)["lines"]
    apart = -1 / 3  # the correlation of two tables whose peaks are apart
    assert found["trained"] == pytest.approx({"a": (1 + apart) / 2, "b": 1})
    assert found["twins"] == pytest.approx({"a": (1 + apart) / 2, "b": 0})
    assert found["comparisons"] == 2 + 2 + 2 + 2
    table = likeness_table({"lines": found})
    assert "| lines | a, b | 8 | 0.67 ± 0.33 (2) | 0.17 ± 0.17 (2) | 0.50 ± 0.50 (2) |" in table
    assert likeness(models[:2]) == {}


def test_correlations_are_those_of_numpy():
    first, second = torch.randn(3, 9).double().numpy(), torch.randn(2, 9).double().numpy()
    assert correlations(first, second) == pytest.approx(np.corrcoef(first, second)[:3, 3:])
