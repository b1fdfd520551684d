"""All rows of Tables 1 and 4 by one command, at toy size: resumable, with their table and figures."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from commands import call
from lab.cases import few_test_images, quiet, without_times

from conv2attn.errors import UsageError
from conv2attn.files import load, save
from conv2attn.lab.training import TrainingRecipe, TrainingRun, fresh_network, learning_rate, network_digest, train
from conv2attn.networks.zoo import ClassifierPlan
from studies.figures import accuracy_figure, draw_figures
from studies.paper import MODELS, RECIPES, described, paper, recipes, train_paper
from studies.pruning import prune

DATA = ["--data", "digits", "--train-images", "20", "--test-images", "20", "--batch", "10", "--epochs", "2"]
ROWS = tuple(recipes(TrainingRecipe("quadratic"), Path("runs")))
TOY = [*DATA, "--heads", "2", "--layers", "1", "--width", "8", "--hidden", "8", "--positions", "4"]


def toy(model):
    """A row that is counted in milliseconds, and has no number of the paper to meet."""
    sizes = {"width": 8, "layers": 1, "hidden": 8, "heads": 2, "positions": 4}
    plan = replace(model.plan, **(sizes if isinstance(model.plan, ClassifierPlan) else {"width": 4}))
    return replace(model, plan=plan, parameters="", flops="")


def few_figures(runs, folder, **options):
    """The figures of one run: tests/studies/test_figures.py has those of several."""
    assert len(runs) == len(ROWS)
    content = next(run for run in runs if run.folder.name == "content")
    return draw_figures([content], folder, average=1, examples=0, **options)


@pytest.fixture(scope="module", autouse=True)
def at_toy_size():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("conv2attn.lab.training.loop.read_images_of", few_test_images)
        patched.setattr("studies.paper.MODELS", tuple(map(toy, MODELS)))
        patched.setattr("studies.paper.draw_figures", few_figures)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of all runs, made by the command without an interruption."""
    folder = tmp_path_factory.mktemp("whole")
    run = call("experiments", *TOY, "-o", folder, program=paper)
    assert run.exit_code == 0, run.output
    assert "learned + content" in run.output
    return folder


@pytest.fixture
def recipe(whole):
    """The recipe of all rows, whatever their networks are."""
    return TrainingRun(whole / "quadratic").recipe


@pytest.fixture
def no_tables(monkeypatch):
    monkeypatch.setattr("studies.paper.write_tables", lambda runs, folder: runs)


@pytest.mark.usefixtures("no_tables")
def test_interrupted_runs_go_on_to_the_same_numbers(tmp_path, whole, recipe):
    calls = 0
    while train_paper(recipe, tmp_path, quiet, steps=3) is None:
        calls += 1
    assert calls == len(ROWS)
    for key in ROWS:
        assert without_times(TrainingRun(tmp_path / key)) == without_times(TrainingRun(whole / key))


def test_every_row_has_its_accuracy_and_its_files(whole, recipe, monkeypatch):
    monkeypatch.setattr("studies.paper.draw_figures", lambda *_, **__: [])
    tables = train_paper(recipe, whole, pytest.fail)
    accuracies = {key: TrainingRun(whole / key).metrics()[-1]["test_accuracy"] for key in ROWS}
    assert {row.key: row.accuracy for row in tables.rows} == accuracies
    for row in tables.rows:
        assert row.best == max(each["test_accuracy"] for each in TrainingRun(whole / row.key).metrics())
        assert row.recipe.startswith("published, 2 of 300 epochs, batch 10")
    assert (whole / "tables.md").read_text() == tables.to_markdown()
    assert {path.name for path in (whole / "figures").iterdir()} == {"accuracy.png", "attention.png", "factors.png"}
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
    "published": {
        "resnet": {0: 0.1, 79.998: 0.1, 80: 0.01, 149.998: 0.01, 150: 0.001, 249: 0.001, 250: 1e-4, 299.998: 1e-4},
        "quadratic": {0: 0.1 / 7500, 7.5: 0.1 * 3751 / 7500, 15: 0.1, 157.5: 0.05, 228.75: 0.1 * (2 - 2**0.5) / 4},
        "pruned": {0: 0.01 / 7500, 15: 0.01, 157.5: 0.005},
    },
    "code": {
        "resnet": {0: 0.1, 79.998: 0.1, 80: 0.01, 149.998: 0.01, 150: 0.001, 249: 0.001, 250: 1e-4, 299.998: 1e-4},
        "quadratic": {0: 0, 0.998: 0, 1: 6.65335995e-3, 15.5: 9.98003992e-2, 16: 9.99971532e-2, 299: 7.74539094e-6},
        "pruned": {0: 0, 5: 9.98003992e-3, 6.5: 9.99733137e-3, 99.998: 3.92069290e-6},
    },
}
"""The rate at some epochs, of 300 by 500 steps (of the pruned run of the code: 100): the ResNet's steps; a rise over
the first twentieth and half a cosine; and the same in the authors' program, at the first step of each epoch, s = 500 e,
with 501 steps counted: s / 7515 below 7515, then (1 + cos(pi (s - 7515) / 142785)) / 2."""


@pytest.mark.parametrize("source", RECIPES)
@pytest.mark.parametrize("key", ["resnet", "quadratic", "pruned"])
def test_both_recipes_have_the_rates_that_are_computed_by_hand(source, key):
    row = recipes(TrainingRecipe("quadratic"), Path("runs"), source)[key]
    assert row.epochs == (100 if (source, key) == ("code", "pruned") else 300)
    for epoch, rate in RATES[source][key].items():
        assert learning_rate(row, round(500 * epoch), 500 * row.epochs) == pytest.approx(rate, rel=1e-8), epoch


@pytest.mark.parametrize(
    ("epochs", "rates"), [(30, {7: 0.1, 8: 0.01, 15: 1e-3, 25: 1e-4}), (3, {0: 0.1, 1: 0.01, 2: 1e-3})]
)
@pytest.mark.parametrize("source", RECIPES)
def test_shorter_runs_have_the_same_shares(epochs, rates, source):
    rows = recipes(TrainingRecipe("quadratic", epochs=epochs), Path("runs"), source)
    for epoch, rate in rates.items():
        for step in (500 * epoch, 500 * epoch + 499):
            assert learning_rate(rows["resnet"], step, 500 * epochs) == pytest.approx(rate, rel=1e-12)
    assert rows["pruned"].epochs == (epochs / 3 if source == "code" else epochs)
    first, last = (learning_rate(rows["quadratic"], step, 500 * epochs) for step in (0, 500 * epochs - 1))
    assert first < 0.1 / (20 * epochs)
    assert last < 1e-4 or source == "code"


def test_a_recipe_is_whole_and_the_sizes_of_rows_are_in_proportion():
    """What the caller says of training is not read, and what he says of data and sizes is."""
    other = {"learning_rate": 7.0, "schedule": "constant", "dropout": 0.5, "weight_decay": 1.0, "milestones": (1, 2)}
    for source in RECIPES:
        plain, changed = (
            recipes(TrainingRecipe("learned", width=100, heads=9, seed=3, **given), Path("runs"), source)
            for given in ({}, other)
        )
        assert plain == changed
        assert {row.attention_dropout for row in plain.values()} == {0.1}
        assert (plain["resnet"].width, plain["quadratic"].width, plain["many-heads"].heads) == (16, 100, 16)
        assert {row.seed for row in plain.values()} == {3}
        assert {described(key, row).partition(",")[0] for key, row in plain.items()} == {source}
        for key, row in plain.items():
            assert described(key, replace(row, learning_rate=0.2)).startswith("another recipe")
            assert described("content" if key == "learned" else "learned", row).startswith("another recipe")
    short = replace(plain["pruned"], epochs=10, batch=5)
    assert described("pruned", short) == "code, 10 of 100 epochs, batch 5, width 100"
    assert described("quadratic", TrainingRecipe("quadratic")) == "another recipe, 300 epochs"


@pytest.mark.parametrize(
    ("kind", "draws"),
    [
        ("quadratic", {"center": (0, 2), "width": (1, 0.01)}),
        ("generalised", {"center": (0, 2), "root": (0, 0.01)}),
        ("learned", {"tables": (0, 1), "bias": (0, 3**-0.5 / 16)}),
    ],
)
def test_positions_are_drawn_as_in_the_authors_code(kind, draws):
    """Means and deviations over 8,000 numbers and more; the paper's own draw has others."""
    recipe = TrainingRecipe(kind, heads=2000, layers=1, width=8, hidden=8, positions=256, initialisation="code")
    images = SimpleNamespace(shape=(3, 16, 16), classes=range(10), name="images")
    found, paper = (
        dict(fresh_network(replace(recipe, initialisation=how), images).blocks[0].attention.encoding.named_parameters())
        for how in ("code", "paper")
    )
    for name, (mean, deviation) in draws.items():
        apart = []
        for parameters in (found, paper):
            if name == "width":
                values = (2 * parameters["alpha"]).sqrt()
            elif name == "root":
                values = parameters["root"] - torch.eye(2)
            else:
                values = parameters["tables.0" if name == "tables" else name]
            values = values.detach()
            apart.append(float(values.std()))
            if parameters is found:
                assert float(values.mean()) == pytest.approx(mean, abs=4 * deviation / values.numel() ** 0.5)
        assert apart[0] == pytest.approx(deviation, rel=0.05)
        assert abs(apart[1] / deviation - 1) > 0.2


def test_the_parent_of_a_run_is_found_wherever_the_file_lies(tmp_path, whole):
    """The pruned network is written elsewhere, and the run of it moved: its curve goes on where its parent's ends."""
    parent = TrainingRun(whole / "generalised")
    pruned = prune(load(parent.network), {"blocks.0.attention": (0,)})
    save(pruned, tmp_path / "elsewhere.safetensors")
    started = train(
        replace(parent.recipe, start=str(tmp_path / "elsewhere.safetensors"), epochs=1), tmp_path / "run", report=quiet
    )
    assert started.recipe.parent == network_digest(load(parent.network)) == network_digest(pruned)
    moved = TrainingRun((tmp_path / "run").rename(tmp_path / "moved"))
    unrelated = TrainingRun(whole / "quadratic")
    curves = accuracy_figure([moved, unrelated, parent]).axes[0].lines
    assert {line.get_label(): min(line.get_xdata()) for line in curves} == {
        "moved": 3,
        "quadratic": 1,
        "generalised": 1,
    }
    assert network_digest(load(unrelated.network)) != network_digest(load(parent.network))


@pytest.mark.usefixtures("no_tables")
def test_a_folder_that_was_moved_is_not_one_of_another_recipe(tmp_path, whole, recipe):
    moved = tmp_path / "moved"
    shutil.copytree(whole, moved)
    assert train_paper(recipe, moved, pytest.fail) is not None
    with pytest.raises(UsageError, match=r"C2A004 .* holds a run of another recipe"):
        train_paper(recipe, moved, quiet, source="code")
