"""All rows of Tables 1 and 4 by one command, at toy size: resumable, with their table and figures."""

from dataclasses import replace
from pathlib import Path

import pytest
from commands import call
from lab.cases import quiet

from conv2attn.errors import UsageError
from conv2attn.lab.figures import accuracy_figure
from conv2attn.lab.paper_runs import recipes, train_paper
from conv2attn.lab.training import TrainingRecipe, TrainingRun, learning_rate

DATA = ["--data", "digits", "--train-images", "20", "--test-images", "20", "--batch", "10", "--epochs", "2"]
ROWS = tuple(recipes(TrainingRecipe("quadratic"), Path("runs")))
TOY = [*DATA, "--heads", "2", "--layers", "1", "--width", "8", "--hidden", "8", "--positions", "4"]


def without_times(run):
    return [{name: value for name, value in row.items() if "seconds" not in name} for row in run.metrics()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of all runs, made by the command without an interruption."""
    folder = tmp_path_factory.mktemp("whole")
    run = call("reproduce", "experiments", *TOY, "-o", folder)
    assert run.exit_code == 0, run.output
    assert "learned + content" in run.output
    return folder


@pytest.fixture
def recipe(whole):
    """The recipe of all rows, whatever their networks are."""
    return TrainingRun(whole / "quadratic").recipe


@pytest.fixture
def no_figures(monkeypatch):
    monkeypatch.setattr("conv2attn.lab.paper_runs.draw_figures", lambda *_, **__: [])


def test_interrupted_runs_go_on_to_the_same_numbers(tmp_path, monkeypatch, whole, recipe):
    monkeypatch.setattr("conv2attn.lab.paper_runs.write_tables", lambda runs, folder: runs)
    calls = 0
    while train_paper(recipe, tmp_path, quiet, steps=3) is None:
        calls += 1
    assert calls == len(ROWS)
    for key in ROWS:
        assert without_times(TrainingRun(tmp_path / key)) == without_times(TrainingRun(whole / key))


@pytest.mark.usefixtures("no_figures")
def test_every_row_has_its_accuracy_and_its_files(whole, recipe):
    tables = train_paper(recipe, whole, pytest.fail)
    accuracies = {key: TrainingRun(whole / key).metrics()[-1]["test_accuracy"] for key in ROWS}
    assert {row.key: row.accuracy for row in tables.rows} == accuracies
    assert (whole / "tables.md").read_text() == tables.to_markdown()
    figures = {path.name for path in (whole / "figures").iterdir()}
    assert {"accuracy.png", "quadratic-centers.png", "content-attention.png"} <= figures
    assert TrainingRun(whole / "content").recipe.terms == "qk+qr"


def test_the_pruned_run_continues_the_epochs_of_the_first(whole):
    runs = [TrainingRun(whole / key) for key in ("generalised", "pruned")]
    for order in (runs, runs[::-1]):
        lines = {line.get_label(): list(line.get_xdata()) for line in accuracy_figure(order).axes[0].lines}
        assert lines == {"generalised": [1, 2], "pruned": [3, 4]}
    (alone,) = accuracy_figure(runs[1:]).axes[0].lines
    assert list(alone.get_xdata()) == [1, 2]


def test_runs_of_another_recipe_are_not_mixed(whole, recipe):
    with pytest.raises(UsageError, match=r"C2A004 .* holds a run of another recipe"):
        train_paper(replace(recipe, seed=1), whole, quiet)


RATES = {
    300: {0: 0.1, 79: 0.1, 80: 0.01, 149: 0.01, 150: 0.001, 249: 0.001, 250: 1e-4, 299: 1e-4},
    30: {0: 0.1, 7: 0.1, 8: 0.01, 14: 0.01, 15: 0.001, 24: 0.001, 25: 1e-4, 29: 1e-4},
    3: {0: 0.1, 1: 0.01, 2: 1e-3},
}
"""The rate of the ResNet by the length of the run and the epoch: steps of ten at 80, 150 and 250 of 300."""


@pytest.mark.parametrize("epochs", RATES)
def test_the_resnet_has_its_own_steps_as_shares_of_the_run_and_no_warm_up(epochs):
    rows = recipes(TrainingRecipe("quadratic", epochs=epochs), Path("runs"))
    for epoch, rate in RATES[epochs].items():
        for step in (500 * epoch, 500 * epoch + 499):
            assert learning_rate(rows["resnet"], step, 500 * epochs) == pytest.approx(rate, rel=1e-12)
    assert learning_rate(rows["quadratic"], 0, 500 * epochs) < 0.1 / (20 * epochs)
    assert learning_rate(rows["quadratic"], 500 * epochs - 1, 500 * epochs) < 1e-4


def test_milestones_of_the_caller_are_epochs():
    common = TrainingRecipe("quadratic", epochs=30, milestones=(10, 20))
    assert recipes(common, Path("runs"))["resnet"].milestones == (10, 20)
