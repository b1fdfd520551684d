"""The small table: it calls the command, leaves out unfinished runs, and has its rows' means."""

from itertools import product
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from conv2attn.errors import CheckpointError
from studies import small
from studies.paper import paper


def test_each_seed_runs_the_command_with_the_sizes_of_the_page(tmp_path, monkeypatch):
    """The rows themselves are trained in the tests of that command."""
    contexts = []

    def trained(words):
        assert words[1:4] == ["-m", "studies.paper", "experiments"]
        contexts.append(paper.commands["experiments"].make_context("", words[4:]).params)
        for row in small.ROWS:
            folder = Path(contexts[-1]["output"]) / row
            folder.mkdir(parents=True)
            (folder / "metrics.csv").write_text("test_accuracy,seconds\n" + "0.5,1\n" * 9)
        return CompletedProcess(words, 0)

    monkeypatch.setattr(small.subprocess, "run", trained)
    table = tmp_path / "small.csv"
    table.write_text("a table of fewer runs")
    small.main([str(tmp_path / "runs"), str(table)])
    assert [(row["seed"], row["row"]) for row in small.read(table)] == list(product("012", small.ROWS))
    assert [context["seed"] for context in contexts] == [0, 1, 2]
    assert {(context["width"], context["layers"], context["patch"], context["epochs"]) for context in contexts} == {
        (100, 3, 4, 9)
    }


def test_a_run_that_ends_badly_ends_the_script_with_its_code(tmp_path, monkeypatch):
    monkeypatch.setattr(small.subprocess, "run", lambda words: CompletedProcess(words, 2))
    with pytest.raises(SystemExit) as ended:
        small.main([str(tmp_path / "runs"), str(tmp_path / "small.csv")])
    assert ended.value.code == 2
    assert not (tmp_path / "small.csv").exists()


def test_a_run_with_an_epoch_left_is_no_row(tmp_path):
    folder = tmp_path / "0" / "quadratic"
    folder.mkdir(parents=True)
    (folder / "metrics.csv").write_text("test_accuracy,seconds\n0.6,2\n" + "0.5,4\n" * 7)
    assert small.run_of(tmp_path, "quadratic", 0) is None
    with (folder / "metrics.csv").open("a") as file:
        file.write("0.25,6\n")
    finished = {"row": "quadratic", "seed": "0", "last": "25.00", "best": "60.00", "seconds": "6"}
    assert small.run_of(tmp_path, "quadratic", 0) == finished


def test_means_and_errors_are_those_of_the_rows():
    rows = [
        dict(zip(small.COLUMNS, ("learned", seed, last, "70", "1"), strict=True))
        for seed, last in (("0", "60"), ("1", "64"))
    ]
    assert "| learned | 2 of 3 | 62.0 +- 2.0 | 70.0 +- 0.0 |" in small.page_of(rows)
    assert "| learned | 1 of 3 | 60.0 | 70.0 |" in small.page_of(rows[:1])


def test_another_table_is_refused(tmp_path):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(CheckpointError, match="no table of the columns"):
        small.read(tmp_path / "other.csv")
