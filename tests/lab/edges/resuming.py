"""Runs are continued from their folder: the checkpoint holds all that they need, and changes are named.

Laws of tests/lab continue whole runs; these are damaged or edited ones.
"""

import copy
import json
import shutil

import pytest
import torch
from commands import call, refused
from lab.cases import quiet, small

import conv2attn
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.lab.training import TrainingRun, loop, train

DIVERGING = {"epochs": 30, "learning_rate": 1e30, "schedule": "constant", "warm_up": 0.0}


def test_a_run_that_fails_at_once_can_be_resumed_from_its_first_step(tmp_path):
    with pytest.raises(UnsupportedError, match="C2A601"):
        train(small("learned", **DIVERGING), tmp_path / "run", report=quiet)
    kept = TrainingRun(tmp_path / "run").read_checkpoint()
    assert kept["progress"]["step"] < 4
    assert all(tensor.isfinite().all() for tensor in kept["network"].values())
    with pytest.raises(UnsupportedError, match="C2A601"):
        train(None, tmp_path / "run", report=quiet)


def test_a_folder_with_only_a_configuration_is_taken_over(tmp_path):
    TrainingRun.create(tmp_path / "run", small("quadratic", seed=1))
    run = train(small("quadratic", epochs=1), tmp_path / "run", report=quiet)
    assert run.finished
    assert run.recipe == small("quadratic", epochs=1)


@pytest.mark.parametrize("lost", ["network.pt", "metrics.csv", "positions.npz"])
def test_files_that_follow_from_the_checkpoint_are_written_again(tmp_path, lost):
    run = train(small("quadratic", epochs=1), tmp_path / "run", report=quiet)
    metrics, network = (run.folder / "metrics.csv").read_bytes(), conv2attn.load(run.network).state_dict()
    (run.folder / lost).unlink()
    assert call("train", "--resume", run.folder).exit_code == 0
    assert run.positions()
    assert (run.folder / "metrics.csv").read_bytes() == metrics
    assert all(torch.equal(tensor, network[key]) for key, tensor in conv2attn.load(run.network).state_dict().items())


@pytest.mark.parametrize(("field", "value"), [("seed", 7), ("learning_rate", 0.5), ("width", 24), ("images", 30)])
def test_an_edited_configuration_is_refused_by_the_name_of_its_field(tmp_path, field, value):
    run = train(small("quadratic"), tmp_path / "run", steps=2, report=quiet)
    path = run.folder / "configuration.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    refused("train", "--resume", run.folder, match=f"{field}={value!r}")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """The folder of a run that stopped after two steps."""
    return train(small("quadratic"), tmp_path_factory.mktemp("stopped") / "run", steps=2, report=quiet).folder


def without(content, *names):
    """A checkpoint that lacks an entry."""
    content = copy.deepcopy(content)
    *outer, last = names
    inner = content
    for name in outer:
        inner = inner[name]
    inner.pop(last)
    return content


@pytest.mark.parametrize(
    "lost",
    [
        *((part,) for part in ("recipe", "images", "network", "widths", "optimiser", "scaler", "progress")),
        ("recipe", "kind"),
        ("network", "a weight"),
        ("optimiser", "state"),
        ("progress", "step"),
        ("widths", 0),
    ],
)
def test_an_incomplete_checkpoint_is_refused_in_a_sentence(checkpoint, tmp_path, lost):
    folder = shutil.copytree(checkpoint, tmp_path / "run")
    content = torch.load(folder / "checkpoint.pt", weights_only=False)
    lost = (lost[0], next(iter(content["network"]))) if lost[-1] == "a weight" else lost
    torch.save(without(content, *lost), folder / "checkpoint.pt")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    refused("train", "--resume", folder, match="C2A302")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_other_images_under_the_same_name_are_refused(tmp_path, monkeypatch):
    run = train(small("quadratic"), tmp_path / "run", steps=2, report=quiet)
    images = loop.read_images_of("digits")
    images.pixels[0, 0, 0, 0] ^= 1
    monkeypatch.setattr(loop, "read_images_of", lambda source: images)
    with pytest.raises(UsageError, match="digits are not those"):
        train(None, run.folder, report=quiet)


def test_a_run_goes_on_for_more_epochs(tmp_path):
    run = train(small("quadratic", schedule="constant"), tmp_path / "run", report=quiet)
    assert call("train", "--resume", run.folder, "--epochs", 3).exit_code == 0
    again = TrainingRun(run.folder)
    whole = train(small("quadratic", schedule="constant", epochs=3, warm_up=0.05), tmp_path / "whole", report=quiet)
    assert [row["step"] for row in again.metrics()] == [row["step"] for row in whole.metrics()]
    assert again.recipe.epochs == 3
    refused("train", "--resume", run.folder, "--epochs", 2, match="fewer than the 3 that are done")


def test_absent_tensorboard_is_said_once(tmp_path, monkeypatch):
    monkeypatch.setattr("conv2attn.lab.training.loop.is_installed", lambda library: False)
    said = []
    train(small("quadratic"), tmp_path / "run", report=said.append)
    assert sum("no event files" in line for line in said) == 1
