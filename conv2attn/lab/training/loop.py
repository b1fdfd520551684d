"""The training loop, in one process or in several; a continued run equals the uninterrupted one.

Every random draw depends only on the seed and the step.
"""

import gc
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import FrameType
from typing import Any, Self, final

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from conv2attn.arguments import FAILURES
from conv2attn.errors import EngineError, UnsupportedError, UsageError, first_line
from conv2attn.extras import is_installed
from conv2attn.files import save
from conv2attn.generators import CPU, generators_kept, seed_generator
from conv2attn.lab.data import Augmentation, LabelledImages, normalised_images, read_images_of
from conv2attn.lab.training.recipe_networks import (
    Widths,
    head_parameters,
    network_digest,
    network_for,
    optimiser_for,
    recipe_dtype,
    starting_network,
)
from conv2attn.lab.training.run_folder import Progress, TrainingRun
from conv2attn.lab.training_recipe import TrainingRecipe, learning_rate
from conv2attn.report.progress import progress as shown_progress


@final
@dataclass(frozen=True)
class Worker:
    """Process `rank` of `size`, which computes on `device`."""

    rank: int
    size: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this process writes files and reports."""
        return self.rank == 0

    def total(self, numbers: Sequence[float]) -> list[float]:
        """The sums of these numbers over all processes."""
        if self.size == 1:
            return list(numbers)
        sums = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        return sums.tolist()

    def wait(self) -> None:
        """Waits for all processes."""
        self.total([0.0])

    def share(self, indices: torch.Tensor) -> torch.Tensor:
        """This process's part of a batch: an equal slice."""
        return indices.tensor_split(self.size)[self.rank]


@contextmanager
def worker_group(device: str) -> Iterator[Worker]:
    """This process in the group started by torchrun, or alone.

    Under torchrun the processes exchange gradients by NCCL on GPUs, one each, and by gloo on CPUs. No object that
    refers to the group, such as DistributedDataParallel, may outlive it: otherwise torch waits forever for a thread
    that waits for the interpreter.

    Raises:
        UsageError: there is no such device (C2A002).
    """
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        sentence = first_line(error)
        raise UsageError(
            "C2A002", f"device {device!r} is not available ({sentence})", "Name another --device."
        ) from error
    if torch.device(device).type == "meta":
        raise UsageError("C2A002", "device 'meta' computes nothing", "Name another --device.")
    if "TORCHELASTIC_RUN_ID" not in os.environ and "WORLD_SIZE" not in os.environ:
        yield Worker(0, 1, torch.device(device))
        return
    kind = torch.device(device).type
    worker_device = torch.device(kind, int(os.environ.get("LOCAL_RANK", 0))) if kind == "cuda" else torch.device(kind)
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    try:
        yield Worker(dist.get_rank(), dist.get_world_size(), worker_device)
    finally:
        gc.collect()  # DistributedDataParallel has reference cycles
        dist.destroy_process_group()


AUTOCAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}
ORDER, AUGMENTATION, DROPOUT = range(3)
LineReport = Callable[[str], None]


def train(
    recipe: TrainingRecipe | None,
    folder: str | Path,
    *,
    device: str = "cpu",
    epochs: int | None = None,
    steps: int | None = None,
    report: LineReport = lambda line: print(line, file=sys.stderr, flush=True),
) -> TrainingRun:
    """Trains by the recipe, or continues the run in `folder`, with the same numbers as without interruption.

    Args:
        recipe: recipe of a new run; None continues.
        folder: folder of the run.
        device: device of the run; under torchrun, each process uses its GPU.
        epochs: the number of epochs of a continued run, instead of its recipe's.
        steps: stop after this many steps of this call, as on an interrupt.
        report: called with one line per epoch.
    Returns:
        The run; if the process was interrupted, it is unfinished, with a checkpoint. A new run that fails before its
            first checkpoint leaves no files.
    Raises:
        UnsupportedError: the loss is not finite (C2A601).
        UsageError: the configuration or the images differ from the checkpoint's (C2A004), or `epochs` is less than the
            number done (C2A001).
        CheckpointError, UsageError: see `read_images_of`, `network_for`, and `create` and `read_checkpoint` of the run.
    """
    with worker_group(device) as worker, generators_kept([worker.device]):
        run, state = TrainingRun(Path(folder)), None
        if recipe is None:
            state = run.read_checkpoint()
            recipe = continued_recipe(
                run.recipe, TrainingRecipe.from_dict(state["recipe"]), epochs, len(state["progress"]["rows"])
            )
        elif recipe.start is not None and recipe.parent is None:
            recipe = replace(recipe, parent=network_digest(starting_network(recipe)))
        images = read_images_of(recipe.data)
        before = frozenset(run.folder.iterdir()) if run.folder.is_dir() else None
        if worker.leads and state is None:
            # Images that do not fit the network are refused before a folder is created.
            network_for(recipe, images)
            run = TrainingRun.create(run.folder, recipe)
        training = Training(run, recipe, images, worker, state)
        worker.wait()
        if worker.leads:
            # All processes have read the checkpoint by now, so the first one may replace it.
            run.configure(recipe)
            training.write_files()
        try:
            with Interruption() as interruption:
                training.loop(interruption, steps, report)
        except (EngineError, UsageError):
            if worker.leads and state is None and not training.progress.rows:
                run.remove(before)
            raise
        # DistributedDataParallel must not outlive the group: see `worker_group`.
        del training
        worker.wait()
        return TrainingRun(run.folder)


def continued_recipe(
    configured: TrainingRecipe, stored: TrainingRecipe, epochs: int | None, done: int
) -> TrainingRecipe:
    """The recipe of a continued run: that of its checkpoint, with `epochs` if given.

    Raises:
        UsageError: the configuration differs from it (C2A004), or `epochs` is less than the number done (C2A001).
    """
    for field in fields(TrainingRecipe):
        configured_value, stored_value = getattr(configured, field.name), getattr(stored, field.name)
        if configured_value != stored_value and (field.name, configured_value) != ("epochs", epochs):
            remedy = "--resume with --epochs goes on longer; for anything else start a new run."
            reason = f"configuration.json says {field.name}={configured_value!r}, "
            reason += f"and the checkpoint {field.name}={stored_value!r}"
            raise UsageError("C2A004", reason, f"Put it back: {remedy}")
    if epochs is not None and epochs < done:
        raise UsageError("C2A001", f"epochs={epochs} is fewer than the {done} that are done", "Pass more --epochs.")
    return stored if epochs is None else replace(stored, epochs=epochs)


@final
class Interruption:
    """Within the block, the first SIGINT or SIGTERM only sets `requested`; a second one ends the process as usual."""

    def __init__(self) -> None:
        self.requested = False
        self.before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        # Python allows signal handlers to be set in the main thread only.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self.request)
        return self

    def request(self, number: int, frame: FrameType | None) -> None:
        """Records the request and restores the previous handlers."""
        self.requested = True
        signal.signal(number, self.before[signal.Signals(number)])

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


@contextmanager
def event_writer(
    folder: Path, step: int, enabled: bool, report: LineReport
) -> Iterator[Callable[[str, float, int], Any]]:
    """A function that writes a number by name and step into event files of `folder`, replacing those beyond `step`.

    Without tensorboard it writes nothing, and reports this once.
    """
    if not enabled or not is_installed("tensorboard"):
        if enabled:
            report("no event files: tensorboard is not installed (pip install 'conv2attn[train]')")
        yield lambda name, value, step: None
        return
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder), purge_step=step) as writer:
        yield writer.add_scalar


@final
class Training:
    """One process of a run: the network, its optimiser, the images and the progress."""

    def __init__(
        self,
        run: TrainingRun,
        recipe: TrainingRecipe,
        images: LabelledImages,
        worker: Worker,
        state: dict[str, Any] | None,
    ):
        self.run, self.recipe, self.worker = run, recipe, worker
        self.images = images.first(self.recipe.images, self.recipe.test_images)
        self.mean, self.deviation = self.images.statistics()
        padding = self.images.shape[1] // 8 if self.recipe.crop_padding is None else self.recipe.crop_padding
        mirror = images.mirrors if self.recipe.mirror is None else self.recipe.mirror
        self.augment = Augmentation(padding, mirror)
        self.dtype = recipe_dtype(recipe)
        self.network = network_for(recipe, images).to(worker.device)
        self.widths = Widths(self.network)
        self.optimiser = optimiser_for(self.network, self.widths, self.recipe)
        half = self.recipe.precision == "float16"
        self.scaler = torch.amp.GradScaler(worker.device.type, enabled=half)
        self.progress = Progress(heads=[head_parameters(self.network)])
        if state is not None:
            self.restore(state)
        self.parallel: nn.Module = self.network
        if worker.size > 1:
            self.parallel = DistributedDataParallel(self.network)

    @property
    def batch(self) -> int:
        """Images per step, over all processes."""
        return min(self.recipe.batch, len(self.images.pixels))

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in the training images."""
        return len(self.images.pixels) // self.batch

    def loop(self, interruption: Interruption, limit: int | None, report: LineReport) -> None:
        """Steps until the last epoch, the limit, or an interruption; then a checkpoint."""
        epoch_steps, progress = self.steps_per_epoch, self.progress
        steps = epoch_steps * self.recipe.epochs
        last = steps if limit is None else min(steps, progress.step + limit)
        with (
            event_writer(self.run.folder, progress.step, self.worker.leads, report) as write_event,
            shown_progress(self.worker.leads) as show_progress,
        ):
            interrupted = 0.0
            while progress.step < last and not interrupted:
                start_time = time.monotonic()
                loss = self.step(*divmod(progress.step, epoch_steps))
                # All processes must stop at the same step: the others would wait forever for the gradients of one that
                # stopped alone.
                interrupted, diverged = self.worker.total([interruption.requested, not math.isfinite(loss)])
                if diverged:
                    raise UnsupportedError(
                        "C2A601",
                        f"the loss of step {progress.step + 1} is {loss}",
                        "Lower --learning-rate, or train in --precision float32; the checkpoint before is kept.",
                    )
                progress.step += 1
                progress.seconds += time.monotonic() - start_time
                show_progress(progress.step + 1, steps, "steps")
                if progress.step % epoch_steps == 0:
                    row = self.end_epoch()
                    if self.worker.leads:
                        for name, value in row.items():
                            write_event(name, value, progress.step)
                        report(epoch_line(row, self.recipe.epochs))
            if self.worker.leads:
                self.run.write_checkpoint(self.state())
                if progress.step < steps:
                    report(f"stopped after step {progress.step} of {steps}; --resume {self.run.folder} continues")
                else:
                    report(f"finished after step {steps}: {self.run.network}")

    def generator(self, *numbers: int) -> torch.Generator:
        """A generator that depends only on the seed and these numbers."""
        return torch.Generator().manual_seed(seed_of(self.recipe.seed, *numbers))

    def step(self, epoch: int, index: int) -> float:
        """One batch: forward, backward, update; returns this process's mean loss."""
        order = torch.randperm(len(self.images.pixels), generator=self.generator(ORDER, epoch))
        chosen = order[index * self.batch : (index + 1) * self.batch]
        pixels = self.augment(self.images.pixels[chosen], self.generator(AUGMENTATION, epoch, index))
        # Every process draws the order and the augmentation of the whole batch, and takes its slice. So these draws do
        # not depend on the number of processes.
        place = self.worker.share(torch.arange(len(chosen)))
        inputs = self.prepared(pixels[place])
        labels = self.images.labels[chosen[place]].to(self.worker.device)
        for device in {CPU, self.worker.device}:
            # The seed depends on the rank: with one seed for all, every process would drop the same weights.
            seed_generator(device, seed_of(self.recipe.seed, DROPOUT, self.progress.step, self.worker.rank))
        for group in self.optimiser.param_groups:
            rate = learning_rate(self.recipe, self.progress.step, self.steps_per_epoch * self.recipe.epochs)
            group["lr"] = rate * group["rate"]
        self.parallel.train()
        with self.autocast():
            logits = self.parallel(inputs)
        # Under autocast the logits are in half precision, in which a cross entropy would lose digits.
        loss = cross_entropy(logits.to(self.dtype), labels)
        self.optimiser.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        # The optimiser steps on the inverse widths, so that no step makes a sharpness negative: see `Widths`.
        self.widths.take_gradients()
        self.scaler.step(self.optimiser)
        self.scaler.update()
        self.widths.give_values()
        right = (logits.detach().argmax(1) == labels).sum().item()
        sums = (loss.item() * len(labels), right, len(labels))
        self.progress.sums = [a + b for a, b in zip(self.progress.sums, sums, strict=True)]
        return loss.item()

    def prepared(self, pixels: Tensor) -> Tensor:
        """Bytes as inputs of the network, on the device of this process."""
        return normalised_images(pixels.to(self.worker.device), self.mean, self.deviation).to(self.dtype)

    def autocast(self) -> torch.autocast:
        """Products in the precision of the recipe."""
        dtype = AUTOCAST.get(self.recipe.precision)
        return torch.autocast(self.worker.device.type, dtype, enabled=dtype is not None)

    @torch.no_grad()
    def evaluate(self) -> tuple[float, float]:
        """Mean loss and accuracy on the test images, split over the processes."""
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
        progress.heads.append(head_parameters(self.network))
        progress.sums = [0.0, 0.0, 0.0]
        if self.worker.leads:
            self.write_files()
        return row

    def write_files(self) -> None:
        """Writes the checkpoint, the metrics and heads, and after an epoch the network."""
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
            UsageError: the images differ from the stored state's (C2A004).
            CheckpointError: a part of the state does not fit the network (C2A302).
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


def seed_of(*numbers: int) -> int:
    """A seed that depends on all of these numbers."""
    # The shift keeps the seed within the signed 64 bits that torch accepts.
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]) >> 1


def epoch_line(row: dict[str, float], epochs: int) -> str:
    """The log line of an epoch."""
    return (
        f"epoch {row['epoch']:.0f}/{epochs}  train loss {row['train_loss']:.4f} accuracy {row['train_accuracy']:.4f}  "
        f"test loss {row['test_loss']:.4f} accuracy {row['test_accuracy']:.4f}  {row['seconds']:.0f} s"
    )
