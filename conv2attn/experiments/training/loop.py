"""The training loop: every draw depends on the seed and the step alone, so a continued run is the unbroken one."""

import math
import sys
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from conv2attn.arguments import FAILURES
from conv2attn.checkpoints import save
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.experiments.data import Augmentation, LabelledImages, normalised, read_images_of
from conv2attn.experiments.recipe import Recipe, learning_rate
from conv2attn.experiments.training.interruption import Interruption
from conv2attn.experiments.training.networks import dtype_of, heads_of, network_for
from conv2attn.experiments.training.optimisation import Widths, optimiser_for
from conv2attn.experiments.training.processes import Worker, joined_workers
from conv2attn.experiments.training.run_folder import Progress, Run
from conv2attn.experiments.training.scalars import scalar_writer
from conv2attn.report.progress import progress as shown_progress

MIXED = {"bfloat16": torch.bfloat16, "float16": torch.float16}
ORDER, AUGMENTATION, DROPOUT = range(3)
Report = Callable[[str], None]


def train(
    recipe: Recipe | None,
    folder: str | Path,
    *,
    device: str = "cpu",
    epochs: int | None = None,
    steps: int | None = None,
    report: Report = lambda line: print(line, file=sys.stderr, flush=True),
) -> Run:
    """Trains as the recipe says, or continues the run in `folder` where it stopped, to the same numbers.

    Args:
        recipe: of a new run; None continues.
        folder: where the run is kept.
        device: where to compute; the GPU of each process under torchrun.
        epochs: of a run that is continued: go on until so many, in place of those of its recipe.
        steps: stop after so many steps of this call, as on an interrupt.
        report: is given a line an epoch.
    Returns:
        The run; it is unfinished where the process was interrupted, after a checkpoint.
    Raises:
        UnsupportedError: the loss is not finite (C2A601).
        UsageError: the configuration or the images are not those of the checkpoint (C2A004), or fewer epochs than are
            done (C2A001).
        CheckpointError, UsageError: see `read_images_of`, `network_for`, `Run.create` and `Run.read_checkpoint`.
    """
    with joined_workers(device) as worker:
        run, state = Run(Path(folder)), None
        if recipe is None:
            state = run.read_checkpoint()
            recipe = continued(run.recipe, Recipe.from_dict(state["recipe"]), epochs, len(state["progress"]["rows"]))
        images = read_images_of(recipe.data)
        if worker.leads and state is None:
            network_for(recipe, images)
            run = Run.create(run.folder, recipe)
        training = Training(run, recipe, images, worker, state)
        worker.wait()
        if worker.leads:
            run.configure(recipe)
            training.write_files()
        with Interruption() as interruption:
            training.loop(interruption, steps, report)
        worker.wait()
        return Run(run.folder)


def continued(configured: Recipe, stored: Recipe, epochs: int | None, done: int) -> Recipe:
    """The recipe with which a run goes on: that of its checkpoint, but for the epochs that are asked for.

    Raises:
        UsageError: the configuration differs from it (C2A004), or fewer epochs are asked for than are done (C2A001).
    """
    for field in fields(Recipe):
        ours, theirs = getattr(configured, field.name), getattr(stored, field.name)
        if ours != theirs and (field.name, ours) != ("epochs", epochs):
            how = "--resume with --epochs goes on longer; for anything else start a new run."
            found = f"configuration.json says {field.name}={ours!r}, and the checkpoint {field.name}={theirs!r}"
            raise UsageError("C2A004", found, f"Put it back: {how}")
    if epochs is not None and epochs < done:
        raise UsageError("C2A001", f"epochs={epochs} is fewer than the {done} that are done")
    return stored if epochs is None else replace(stored, epochs=epochs)


@final
class Training:
    """One process of a run: the network, its optimiser, the images and the progress."""

    def __init__(self, run: Run, recipe: Recipe, images: LabelledImages, worker: Worker, state: dict[str, Any] | None):
        self.run, self.recipe, self.worker = run, recipe, worker
        self.images = images.first(self.recipe.images, self.recipe.test_images)
        self.mean, self.deviation = self.images.statistics()
        padding = self.images.shape[1] // 8 if self.recipe.crop_padding is None else self.recipe.crop_padding
        mirror = images.mirrors if self.recipe.mirror is None else self.recipe.mirror
        self.augment = Augmentation(padding, mirror)
        self.dtype = dtype_of(recipe)
        self.network = network_for(recipe, images).to(worker.device)
        self.widths = Widths(self.network)
        self.optimiser = optimiser_for(self.network, self.widths, self.recipe)
        half = self.recipe.precision == "float16"
        self.scaler = torch.amp.GradScaler(worker.device.type, enabled=half)
        self.progress = Progress(heads=[heads_of(self.network)])
        if state is not None:
            self.restore(state)
        self.parallel: nn.Module = self.network
        if worker.size > 1:
            self.parallel = DistributedDataParallel(self.network)

    @property
    def batch(self) -> int:
        """Images a step, over all processes."""
        return min(self.recipe.batch, len(self.images.pixels))

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in the training images."""
        return len(self.images.pixels) // self.batch

    def loop(self, interruption: Interruption, limit: int | None, report: Report) -> None:
        """Steps until the last epoch, the limit, or an interruption; then a checkpoint."""
        every, progress = self.steps_per_epoch, self.progress
        steps = every * self.recipe.epochs
        last = steps if limit is None else min(steps, progress.step + limit)
        with (
            scalar_writer(self.run.folder, progress.step, self.worker.leads, report) as scalars,
            shown_progress(self.worker.leads) as shown,
        ):
            asked = 0.0
            while progress.step < last and not asked:
                started = time.monotonic()
                loss = self.step(*divmod(progress.step, every))
                asked, diverged = self.worker.total([interruption.asked, not math.isfinite(loss)])
                if diverged:
                    raise UnsupportedError("C2A601", f"the loss of step {progress.step + 1} is {loss}")
                progress.step += 1
                progress.seconds += time.monotonic() - started
                shown(progress.step + 1, steps, "steps")
                if progress.step % every == 0:
                    row = self.end_epoch()
                    if self.worker.leads:
                        for name, value in row.items():
                            scalars.add_scalar(name, value, progress.step)
                        report(described(row, self.recipe.epochs))
            if self.worker.leads:
                self.run.write_checkpoint(self.state())
                if progress.step < steps:
                    report(f"stopped after step {progress.step} of {steps}; --resume {self.run.folder} continues")
                else:
                    report(f"finished after step {steps}: {self.run.network}")

    def generator(self, *numbers: int) -> torch.Generator:
        """Random numbers that depend on the seed and these numbers alone."""
        return torch.Generator().manual_seed(mixed(self.recipe.seed, *numbers))

    def step(self, epoch: int, index: int) -> float:
        """One batch: forward, backward, update; returns this process's mean loss."""
        order = torch.randperm(len(self.images.pixels), generator=self.generator(ORDER, epoch))
        chosen = order[index * self.batch : (index + 1) * self.batch]
        pixels = self.augment(self.images.pixels[chosen], self.generator(AUGMENTATION, epoch, index))
        place = self.worker.share(torch.arange(len(chosen)))
        inputs = self.prepared(pixels[place])
        labels = self.images.labels[chosen[place]].to(self.worker.device)
        torch.manual_seed(mixed(self.recipe.seed, DROPOUT, self.progress.step, self.worker.rank))
        for group in self.optimiser.param_groups:
            rate = learning_rate(self.recipe, self.progress.step, self.steps_per_epoch * self.recipe.epochs)
            group["lr"] = rate * group["rate"]
        self.parallel.train()
        with self.autocast():
            logits = self.parallel(inputs)
        loss = cross_entropy(logits.to(self.dtype), labels)
        self.optimiser.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.widths.take_gradients()
        self.scaler.step(self.optimiser)
        self.scaler.update()
        self.widths.give_values()
        right = (logits.detach().argmax(1) == labels).sum().item()
        added = (loss.item() * len(labels), right, len(labels))
        self.progress.sums = [a + b for a, b in zip(self.progress.sums, added, strict=True)]
        return loss.item()

    def prepared(self, pixels: Tensor) -> Tensor:
        """Bytes as the network takes them, on the device of this process."""
        return normalised(pixels.to(self.worker.device), self.mean, self.deviation).to(self.dtype)

    def autocast(self) -> torch.autocast:
        """Products in the precision of the recipe."""
        dtype = MIXED.get(self.recipe.precision)
        return torch.autocast(self.worker.device.type, dtype, enabled=dtype is not None)

    @torch.no_grad()
    def evaluate(self) -> tuple[float, float]:
        """Mean loss and accuracy on the test images, each process a part of them."""
        self.network.eval()
        sums = [0.0, 0.0, 0.0]
        for place in self.worker.share(torch.arange(len(self.images.test_pixels))).split(self.batch):
            inputs = self.prepared(self.images.test_pixels[place])
            with self.autocast():
                logits = self.network(inputs).to(self.dtype).cpu()
            labels = self.images.test_labels[place]
            loss = cross_entropy(logits, labels, reduction="sum").item()
            right = float((logits.argmax(1) == labels).sum())
            sums = [a + b for a, b in zip(sums, (loss, right, float(len(labels))), strict=True)]
        loss, right, count = self.worker.total(sums)
        return loss / count, right / count

    def end_epoch(self) -> dict[str, float]:
        """Evaluates, writes the files of the run, and returns the epoch's row of metrics."""
        progress = self.progress
        loss, right, count = self.worker.total(progress.sums)
        test_loss, test_accuracy = self.evaluate()
        row = {
            "epoch": progress.step // self.steps_per_epoch,
            "step": progress.step,
            "learning_rate": self.optimiser.param_groups[0]["lr"],
            "train_loss": loss / count,
            "train_accuracy": right / count,
            "test_loss": test_loss,
            "test_accuracy": test_accuracy,
            "seconds": progress.seconds,
        }
        progress.rows.append(row)
        progress.heads.append(heads_of(self.network))
        progress.sums = [0.0, 0.0, 0.0]
        if self.worker.leads:
            self.write_files()
        return row

    def write_files(self) -> None:
        """Writes the checkpoint, and all that follows from it."""
        self.run.write_checkpoint(self.state())
        if self.progress.rows:
            self.run.write_epoch(self.progress)
        if self.progress.rows and self.progress.step % self.steps_per_epoch == 0:
            save(self.network.eval(), self.run.network, force=True)

    def state(self) -> dict[str, Any]:
        """The state from which a run continues."""
        return {
            "recipe": self.recipe.to_dict(),
            "images": self.images.digest(),
            "network": self.network.state_dict(),
            "widths": [width.detach() for width in self.widths.widths],
            "optimiser": self.optimiser.state_dict(),
            "scaler": self.scaler.state_dict(),
            "progress": vars(self.progress),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restores a stored state.

        Raises:
            UsageError: the images are not those of it (C2A004).
            CheckpointError: a part of it does not fit the network (C2A302).
        """
        if state["images"] != self.images.digest():
            raise UsageError(
                "C2A004", f"the images of {self.recipe.data} are not those of the checkpoint", "Start a new run."
            )
        parts: dict[str, Callable[[Any], Any]] = {"network": self.network.load_state_dict, "widths": self.widths.load}
        parts |= {"optimiser": self.optimiser.load_state_dict, "scaler": self.scaler.load_state_dict}
        for part, load in parts.items():
            try:
                load(state[part])
            except FAILURES as error:
                raise self.run.incomplete(part) from error
        self.progress = Progress(**state["progress"])


def mixed(*numbers: int) -> int:
    """A seed that depends on all of these numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def described(row: dict[str, float], epochs: int) -> str:
    """An epoch in a line."""
    return (
        f"epoch {row['epoch']:.0f}/{epochs}  train loss {row['train_loss']:.4f} accuracy {row['train_accuracy']:.4f}  "
        f"test loss {row['test_loss']:.4f} accuracy {row['test_accuracy']:.4f}  {row['seconds']:.0f} s"
    )
