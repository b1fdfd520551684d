"""The benchmarks run and make well-formed tables; nothing is asserted about time."""

import json
import re
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import benchmarks.__main__ as engines
from benchmarks import certificates, spans, training
from benchmarks.memory import MIB, measure, peak
from benchmarks.processes import apart
from benchmarks.timing import interleave

ROOT = Path(__file__).parent.parent
ENGINES = {"conv", "gather", "separable", "sdpa", "dense"}


@pytest.fixture(scope="module", autouse=True)
def threads():
    """Gives back the number of threads that a benchmark sets."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder that a quick run writes, and its output. Memory is measured in this process, and so means nothing."""
    folder = tmp_path_factory.mktemp("benchmarks")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("benchmarks.__main__.peak", measure)
        done = CliRunner().invoke(engines.main, ["--quick", "--output", str(folder)], catch_exceptions=False)
    return folder, done.stdout


def test_quick_run_measures_every_layer_and_engine(written):
    data = json.loads((written[0] / "results" / "cpu.json").read_text())
    assert sum(row["count"] for row in data["layers"]) == 20
    assert all(set(row["timings"]) | set(row["expected_seconds"]) > ENGINES for row in data["layers"])
    assert {row["way"] for row in data["stem_memory"]} == ENGINES
    assert set(data["network"]) == {"native", "conv", "gather", "separable"}
    assert data["machine"].keys() == {"processor", "threads", "torch", "python", "load"}


def test_tables_are_well_formed_and_name_no_place_of_this_machine(written):
    folder, printed = written
    text = (folder / "README.md").read_text()
    assert printed == text
    assert len(tables_in(text)) == 6
    assert str(ROOT) not in text + (folder / "results" / "cpu.json").read_text()


def test_functions_take_turns():
    calls: list[str] = []
    timings = interleave({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, seconds=1e-9, rounds=3)
    assert calls == ["a", "b"] * 4
    assert timings["a"].ratio == 1
    assert all(0 < timing.low <= timing.median <= timing.high for timing in timings.values())


def test_peak_is_at_least_the_attention_however_large_the_parent():
    ballast = b"x" * 400 * MIB
    measured = peak("3x3", "dense unchunked", 28, 1)
    assert measured.mebibytes >= 9 * 28**2 * 30**2 * 4 / MIB
    assert measured.mebibytes < len(ballast) / MIB


def test_spans_are_measured_in_processes_of_their_own():
    """The first here as it always is, the others in this process."""
    first, *others = spans.QUICK
    rows = [apart("spans", *first), *(spans.measure(*case) for case in others)]
    head, _, *lines = [line for line in spans.table(rows).splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in (head, *lines)}) == 1
    assert [line.split("|")[1].strip() for line in lines] == ["soft", "hard", "stem", "facts of images, 1"]
    assert [line.split("|")[4].strip() for line in lines] == ["refuted", "holds", "holds", "-"]


def test_the_parts_of_a_certificate_are_measured_apart():
    row = certificates.measure("small", 32, repeats=1)
    assert 0 < sum(row[part] for part in certificates.PARTS) <= row["whole"]
    assert min(row[part] for part in certificates.PARTS) > 0
    assert len(tables_in(certificates.table([row]))) == 1


def tables_in(text):
    """The tables of a page, each with as many columns in every line."""
    tables = re.findall(r"(?:^\|.*\|\n?)+", text, re.MULTILINE)
    for table in tables:
        assert len({line.count("|") for line in table.strip().splitlines()}) == 1
    return tables


def test_training_steps_are_measured(monkeypatch):
    asked = []

    def alone(kind, side):
        asked.append(kind)
        done = CliRunner().invoke(training.main, ["--growth", kind, str(side)], catch_exceptions=False)
        return json.loads(done.stdout)

    monkeypatch.setattr(training, "measured_alone", alone)
    done = CliRunner().invoke(training.main, ["--quick"], catch_exceptions=False)
    assert len(tables_in(done.stdout)) == 4
    assert asked == ["quadratic", "generalised"]
