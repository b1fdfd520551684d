"""The benchmarks run and make well-formed tables; nothing is asserted about time."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.memory import MIB, peak
from benchmarks.timing import interleave

ROOT = Path(__file__).parent.parent
ENGINES = {"conv", "gather", "separable", "sdpa", "dense"}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """What a quick run writes: the folder, and what it printed."""
    folder = tmp_path_factory.mktemp("benchmarks")
    command = [sys.executable, "-W", "error", "-m", "benchmarks", "--quick", "--output", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
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
    tables = re.findall(r"(?:^\|.*\|\n?)+", text, re.MULTILINE)
    assert len(tables) == 6
    for table in tables:
        assert len({line.count("|") for line in table.strip().splitlines()}) == 1
    assert str(ROOT) not in text + (folder / "results" / "cpu.json").read_text()


def test_functions_take_turns():
    calls: list[str] = []
    timings = interleave({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, seconds=0, rounds=3)
    assert calls == ["a", "b"] * 4
    assert timings["a"].ratio == 1
    assert all(0 < timing.low <= timing.median <= timing.high for timing in timings.values())


def test_peak_is_at_least_the_attention_however_large_the_parent():
    ballast = b"x" * 400 * MIB
    measured = peak("3x3", "dense unchunked", 28, 1)
    assert measured.mebibytes >= 9 * 28**2 * 30**2 * 4 / MIB
    assert measured.mebibytes < len(ballast) / MIB


def test_spans_are_measured_in_processes_of_their_own():
    command = [sys.executable, "-W", "error", "-m", "benchmarks.spans", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    head, _, *rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in (head, *rows)}) == 1
    assert [row.split("|")[1].strip() for row in rows] == ["soft", "hard", "stem", "facts, 1 images"]
    assert [row.split("|")[4].strip() for row in rows] == ["refuted", "holds", "holds", "-"]


def test_training_steps_are_measured():
    command = [sys.executable, "-W", "error", "-m", "benchmarks.training", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    tables = re.findall(r"(?:^\|.*\|\n?)+", done.stdout, re.MULTILINE)
    assert len(tables) == 4
    for table in tables:
        assert len({line.count("|") for line in table.strip().splitlines()}) == 1
