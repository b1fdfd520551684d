"""The atlas: measured, kept, failed, twins, thresholds, and the page of the documentation."""

import csv
import json
import re
from pathlib import Path

import pytest
import torch
from scipy import stats
from torch import nn

from conv2attn.errors import CheckpointError
from conv2attn.lab.atlas_list import entries_of
from conv2attn.lab.atlas_page import answer_table, sparkline, with_error
from conv2attn.lab.atlas_runs import atlas, counts_of, tensor_digest

ROOT = Path(__file__).parents[2]
THRESHOLDS = "[thresholds]\nshift = 0.5\npartial = 0.25\nconvolution = 0.5\nkernels = [3]\nearly = 0.34\n"
FACTORY = """
import torch

def shifted(seed=None):
    torch.manual_seed(0)
    if seed is not None:
        return {"a": torch.softmax(0.01 * torch.randn(4, 2, 6, 6), -1), "b": torch.full((4, 2, 6, 6), 1 / 6)}
    one = torch.eye(6).roll(1, 1).expand(4, 2, 6, 6).clone()
    return {"a": one, "b": torch.softmax(3 * torch.randn(4, 2, 6, 6), -1)}

def network():
    return torch.nn.Identity()

def broken():
    raise RuntimeError("no weights here")
"""
LINE = '\n[[model]]\nname = "Tiny"\nkind = "text"\nsource = "made.py:shifted"\ngrid = "line"\n'


@pytest.fixture
def listed(tmp_path):
    """A list of one model, and the file of its factories."""
    (tmp_path / "made.py").write_text(FACTORY)
    path = tmp_path / "list.toml"
    path.write_text(THRESHOLDS + LINE)
    return path


@pytest.mark.slow
def test_a_model_and_its_twin_are_measured_once(listed, tmp_path):
    said = []
    found = atlas(listed, tmp_path / "out", progress=said.append)
    assert [model["name"] for model in found["models"]] == ["Tiny", "Tiny (untrained)"]
    assert not found["failed"]
    whole = json.loads((tmp_path / "out" / "atlas.json").read_text())
    trained, twin = (model["counts"] for model in whole["models"])
    assert trained["early"] == {"heads": 2, "shift": 2, "partial": 2, "itself": 0}
    assert trained["late"]["shift"] == twin["all"]["shift"] == 0
    rows = list(csv.DictReader((tmp_path / "out" / "heads.csv").read_text().splitlines()))
    assert len(rows) == 8
    assert rows[0]["peak"] == "1"
    page = (tmp_path / "out" / "index.md").read_text()
    assert "| Tiny | text | 4 | 2 (50%) |" in page
    assert "at least 50% of its attention" in page
    said.clear()
    atlas(listed, tmp_path / "out", progress=said.append)
    assert all(line.endswith("kept") for line in said)
    (tmp_path / "made.py").write_text(FACTORY + "# changed\n")
    said.clear()
    atlas(listed, tmp_path / "out", progress=said.append)
    assert not any(line.endswith("kept") for line in said)


@pytest.mark.slow
def test_a_model_that_fails_is_named_and_the_others_go_on(listed, tmp_path):
    broken = LINE.replace("Tiny", "Broken").replace("shifted", "broken") + "twin = false\n"
    no_line = LINE.replace("Tiny", "Network").replace("shifted", "network") + "twin = false\n"
    listed.write_text(THRESHOLDS + broken + no_line + LINE + "twin = false\n")
    found = atlas(listed, tmp_path / "out")
    assert found["failed"]["Broken"] == "RuntimeError: no weights here"
    assert "made.py:network made a module (Identity)" in found["failed"]["Network"]
    assert [model["name"] for model in found["models"]] == ["Tiny"]
    assert "- Broken: RuntimeError: no weights here" in (tmp_path / "out" / "index.md").read_text()
    (tmp_path / "made.py").write_text(FACTORY.replace("def shifted", "def moved"))
    listed.write_text(THRESHOLDS + LINE + "twin = false\n")
    assert not atlas(listed, tmp_path / "out")["models"]  # the result of before is not that of this file


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (LINE, "[thresholds] of list.toml has no convolution"),
        (THRESHOLDS, "list.toml has no [[model]] tables"),
        (THRESHOLDS + LINE + LINE, "two models would be written to tiny.json"),
        (THRESHOLDS + LINE + LINE.replace("Tiny", "tiny!"), "two models would be written to tiny.json"),
        (THRESHOLDS + LINE + "seed = 1\n", "model 'Tiny' of list.toml has a field 'seed', which is none of arguments"),
        (THRESHOLDS + LINE + "replace = 'yes'\n", "has replace = 'yes', which is not true or false"),
        (THRESHOLDS.replace("shift", "shifts") + LINE, "[thresholds] of list.toml has no shift"),
        (THRESHOLDS.replace("0.5", "'much'") + LINE, "has shift = 'much', which is not a number from 0 to 1"),
        (THRESHOLDS.replace("0.5", "true") + LINE, "has shift = True, which is not a number from 0 to 1"),
        (THRESHOLDS.replace("0.5", "nan") + LINE, "has shift = nan, which is not a number from 0 to 1"),
        (THRESHOLDS.replace("[3]", "3") + LINE, "has kernels = 3, which is not a list"),
        (THRESHOLDS + LINE + "only = 3\n", "has only = 3, which is not a text or a list"),
        (THRESHOLDS + LINE + "note = 2020-01-01\n", "which is not a text"),
        (THRESHOLDS + LINE.replace("[[model]]", "[model]"), "list.toml has no [[model]] tables"),
        ("[[", "list.toml is no TOML file"),
        ("a = " + 3000 * "[" + 3000 * "]", "list.toml is no TOML file"),
    ],
)
def test_lists_that_are_none_are_refused(listed, text, sentence, monkeypatch):
    listed.write_text(text)
    monkeypatch.chdir(listed.parent)
    with pytest.raises(CheckpointError, match=re.escape(sentence)) as refusal:
        entries_of(Path(listed.name))
    assert refusal.value.code == "C2A303"


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
    heads = [{"peak": peak, "peak_mass": mass} for peak, mass in drawn]
    counts = counts_of(heads, {"shift": 0.5, "partial": 0.25})
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
