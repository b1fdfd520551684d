"""Runs that cannot be: refused in a sentence with a code, before anything is written.

Laws of tests/lab are of runs that end well. Wrong calls are rows of tests/refusals/training.py.
"""

import json

import pytest
import torch
from commands import call, refused
from lab.cases import quiet, small

import conv2attn
from conv2attn.errors import CheckpointError, EngineError, UsageError
from conv2attn.lab.training import TrainingRecipe, TrainingRun, train


def test_a_folder_in_use_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="C2A305"):
        train(small("quadratic"), tmp_path, report=quiet)
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("prepared", [False, True], ids=["no folder", "a folder with a configuration"])
def test_a_recipe_that_does_not_run_leaves_nothing(tmp_path, prepared):
    folder, recipe = tmp_path / "run", small("quadratic", engine="conv")
    if prepared:
        TrainingRun.create(folder, recipe)
    with pytest.raises(EngineError, match="C2A20"):
        train(recipe, folder, report=quiet)
    assert folder.exists() == prepared
    assert not prepared or [file.name for file in folder.iterdir()] == ["configuration.json"]


def test_a_finished_run_is_said_to_be_finished_and_a_damaged_configuration_is_refused(tmp_path):
    run = train(small("quadratic", epochs=1), tmp_path / "run", report=quiet)
    before = run.read_checkpoint()["network"]
    result = call("train", "--resume", run.folder)
    assert (result.exit_code, "finished after step 4: " in result.output) == (0, True)
    assert all(torch.equal(run.read_checkpoint()["network"][key], tensor) for key, tensor in before.items())
    path = run.folder / "configuration.json"
    content = json.loads(path.read_text())
    for damaged in ("{", json.dumps([]), json.dumps({**content, "more": 1}), json.dumps({**content, "epochs": 0})):
        path.write_text(damaged)
        refused("train", "--resume", run.folder, match="C2A")


def test_recipes_survive_their_file():
    recipe = small("resnet", milestones=(1, 2), mirror=False)
    assert TrainingRecipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


@pytest.mark.needs("images")
def test_a_network_that_is_no_classifier_of_the_images_is_refused(tmp_path):
    first = train(small("quadratic", epochs=1), tmp_path / "first", report=quiet)
    again = train(small("quadratic", epochs=1, start=str(first.network)), tmp_path / "again", report=quiet)
    assert again.finished
    with pytest.raises(UsageError, match="is not a classifier of such images"):
        train(small("quadratic", data="fashion-mnist", start=str(first.network)), tmp_path / "other", report=quiet)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("terms", ["qk", "qk+qr"])
@pytest.mark.parametrize("absolute", ["learned", "sinusoidal"])
def test_terms_and_absolute_positions_are_trained(tmp_path, terms, absolute):
    """Table 3's models: absolute positions meet in q.k; the recipe says them, and where weights were dropped."""
    folder = tmp_path / "run"
    sizes = ["--width", "8", "--heads", "2", "--layers", "1", "--hidden", "8", "--train-images", "20", "--batch", "10"]
    options = ["--terms", terms, "--absolute", absolute, "--attention-dropout", "0.1", "--epochs", "1", *sizes]
    result = call("train", "learned", "--data", "digits", "-o", folder, *options)
    assert result.exit_code == 0, result.output
    plan = conv2attn.load(folder / "network.pt").plan
    assert (str(plan.terms), plan.absolute, plan.attention_dropout) == (terms, absolute, 0.1)
    assert TrainingRun(folder).recipe.terms == terms
