"""The folder of a run: configuration, metrics, heads over time, the network, and the checkpoint."""

import csv
import io
import json
import shutil
from collections.abc import Collection
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Self, final

import numpy as np
from torch import Tensor

from conv2attn.errors import CheckpointError
from conv2attn.files import read_dict, write_atomically, write_text_atomically
from conv2attn.files.atomic_files import write_bytes_atomically
from conv2attn.lab.training_recipe import CONFIGURATION, TrainingRecipe, check_new_run

METRICS, POSITIONS = "metrics.csv", "positions.npz"
CHECKPOINT, NETWORK = "checkpoint.pt", "network.pt"
METRIC_COLUMNS = (
    "epoch",
    "step",
    "learning_rate",
    "train_loss",
    "train_accuracy",
    "test_loss",
    "test_accuracy",
    "seconds",
)
RUN_FORMAT = "conv2attn.run/2"
STATE = {
    "recipe": dict,
    "images": str,
    "network": dict,
    "widths": list,
    "optimiser": dict,
    "scaler": dict,
    "progress": dict,
}
"""The parts of a checkpoint, and their types."""

EpochRow = dict[str, float]
HeadTensors = dict[str, Tensor]


@final
@dataclass(eq=False)
class Progress:
    """The progress of a run: steps taken, a row of metrics per epoch, the heads after each epoch, and sums so far."""

    step: int = 0
    rows: list[EpochRow] = field(default_factory=list)
    heads: list[HeadTensors] = field(default_factory=list)
    sums: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    seconds: float = 0.0


@final
@dataclass(frozen=True)
class TrainingRun:
    """A run, given by its folder."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, recipe: TrainingRecipe) -> Self:
        """Creates a folder with the configuration, or uses one with only a configuration.

        Raises:
            CheckpointError: the folder has other files (C2A305), or cannot be created (C2A301).
        """
        check_new_run(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                "C2A301", f"{folder} cannot be made: {error.strerror}", "Choose another folder."
            ) from error
        run = cls(folder)
        run.configure(recipe)
        return run

    def remove(self, before: Collection[Path] | None) -> None:
        """Removes the files of a run; `before` are the files that existed before, None if there was no folder."""
        if before is None:
            shutil.rmtree(self.folder)
            return
        for path in {*self.folder.iterdir()} - {*before}:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def configure(self, recipe: TrainingRecipe) -> None:
        """Writes the configuration."""
        write_text_atomically(self.folder / CONFIGURATION, json.dumps(recipe.to_dict(), indent=2) + "\n", force=True)

    @cached_property
    def recipe(self) -> TrainingRecipe:
        """The configuration.

        Raises:
            CheckpointError: the folder is not that of a run (C2A301, C2A303).
        """
        path = self.folder / CONFIGURATION
        try:
            return TrainingRecipe.from_dict(json.loads(path.read_text()))
        except OSError as error:
            raise CheckpointError(
                "C2A301",
                f"{self.folder} is not the folder of a run: no {CONFIGURATION}",
                "Pass a folder that conv2attn train wrote.",
            ) from error
        except ValueError as error:
            raise CheckpointError("C2A303", f"{path} is not the configuration of a run", "Start a new run.") from error

    @property
    def network(self) -> Path:
        """The file of the network after the last complete epoch; `conv2attn.load` reads it."""
        return self.folder / NETWORK

    @property
    def finished(self) -> bool:
        """Whether the last epoch is done and the network written."""
        done = (self.folder / METRICS).is_file() and len(self.metrics()) == self.recipe.epochs
        return done and self.network.is_file()

    def metrics(self) -> list[EpochRow]:
        """A row for each epoch.

        Raises:
            CheckpointError: there are no metrics yet (C2A301), or the file is incomplete (C2A303).
        """
        path = self.folder / METRICS
        if not path.is_file():
            raise CheckpointError("C2A301", f"{path} does not exist", "Let the run finish an epoch.")
        try:
            with path.open(newline="") as file:
                return [{name: float(row[name]) for name in METRIC_COLUMNS} for row in csv.DictReader(file)]
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                "C2A303", f"{path} is not a table of metrics ({error})", "Start the run again in another folder."
            ) from error

    def positions(self) -> dict[str, np.ndarray]:
        """The heads at the start and after each epoch; empty if heads have no centres.

        Keys are "LAYER:center" (epochs + 1, heads, axes) and "LAYER:precision" (epochs + 1, heads, axes, axes).
        """
        path = self.folder / POSITIONS
        if not path.is_file():
            return {}
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)

    def write_epoch(self, progress: Progress) -> None:
        """Writes metrics and heads; each file is replaced atomically."""
        text = io.StringIO()
        writer = csv.DictWriter(text, METRIC_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(progress.rows)
        write_text_atomically(self.folder / METRICS, text.getvalue(), force=True)
        if progress.heads and progress.heads[0]:
            stacked = {key: np.stack([h[key].numpy() for h in progress.heads]) for key in progress.heads[0]}
            buffer = io.BytesIO()
            np.savez(buffer, **stacked)  # type: ignore[arg-type]
            write_bytes_atomically(self.folder / POSITIONS, buffer.getvalue(), force=True)

    def write_checkpoint(self, state: dict[str, Any]) -> None:
        """Writes the state from which the run continues; a crash leaves the previous checkpoint."""
        write_atomically(self.folder / CHECKPOINT, {"conv2attn": RUN_FORMAT, **state}, force=True)

    def read_checkpoint(self) -> dict[str, Any]:
        """The state written by `write_checkpoint`.

        Raises:
            CheckpointError: the checkpoint is missing (C2A301), damaged or incomplete (C2A302) or of another kind
                (C2A303).
        """
        if not (self.folder / CHECKPOINT).is_file():
            reason = f"{self.folder} holds no {CHECKPOINT}, which a run writes before its first step"
            raise CheckpointError("C2A301", reason, f"Start the run: train KIND -o {self.folder}.")
        content = dict(read_dict(self.folder / CHECKPOINT))
        if content.pop("conv2attn", None) != RUN_FORMAT:
            reason = f"{self.folder / CHECKPOINT} is not the checkpoint of a run"
            raise CheckpointError("C2A303", reason, "Start a new run.")
        for name, kind in STATE.items():
            if not isinstance(content.get(name), kind):
                raise self.incomplete(name)
        if content["progress"].keys() != {part.name for part in fields(Progress)}:
            raise self.incomplete("progress")
        return content

    def incomplete(self, part: str) -> CheckpointError:
        """The error for a checkpoint with a missing part, or a part that does not fit the run."""
        reason = f"{self.folder / CHECKPOINT} is incomplete: its {part} is missing, or is not that of this run"
        return CheckpointError("C2A302", reason, "Start a new run.")
