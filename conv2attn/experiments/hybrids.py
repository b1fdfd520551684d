"""The experiment on transformed CNNs: a CNN trained on, the same CNN going on as attention, and that from scratch."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self, final

import torch
from torch import Tensor

from conv2attn.checkpoints import load
from conv2attn.experiments.data import LabelledImages, accuracy, normalised_images, read_images_of
from conv2attn.experiments.run_rows import RunRow, add_row, mean_and_error, read_rows
from conv2attn.experiments.training import train
from conv2attn.experiments.training_recipe import TRANSFORM, TrainingRecipe
from conv2attn.experiments.transform import transformed_layers
from conv2attn.report import Cell, Document, Notes, Report, Table, document

IMAGES, EPOCHS, MORE = 5000, 12, 6
"""Fixed before any run: training images, epochs of the CNN, and further epochs."""
HYBRID_SEEDS = (0, 1, 2)
CNN = TrainingRecipe(
    "resnet",
    width=8,
    images=IMAGES,
    test_images=1000,
    optimiser="adamw",
    learning_rate=4e-3,
    weight_decay=0.05,
    schedule="cosine",
    epochs=EPOCHS,
)
HYBRID: dict[str, Any] = {**TRANSFORM, "epochs": MORE}
HYBRID_ARMS = ("cnn", "cnn, trained on", "hybrid", "hybrid from scratch")
TESTS = ("clean", "shifted", "noisy", "occluded")
HYBRID_COLUMNS = ("arm", "seed", *TESTS, "moved", "moved_most", "alpha", "content", "seconds")


def recipe_of(arm: str, seed: int, cnn: Path) -> TrainingRecipe:
    """The recipe of an arm; `cnn` is the file of the CNN of this seed."""
    plain = replace(CNN, seed=seed)
    match arm:
        case "cnn":
            return plain
        case "cnn, trained on":
            return replace(plain, start=str(cnn), epochs=MORE, learning_rate=HYBRID["learning_rate"], seed=seed + 100)
        case "hybrid":
            return replace(plain, start=str(cnn), seed=seed + 100, **HYBRID)
    return replace(plain, **{**HYBRID, "learning_rate": CNN.learning_rate, "epochs": EPOCHS + MORE})


def test_variants(images: LabelledImages) -> dict[str, Tensor]:
    """The test images unchanged, shifted by two pixels, with noise of deviation 0.1, and with a square of 8x8 hidden.

    Directions, noise and places are drawn with the seed 0; what moves in, and the square, is black.
    """
    generator = torch.Generator().manual_seed(0)
    pixels, side = images.test_pixels, images.shape[1]
    count = len(pixels)
    directions = torch.tensor([(-2, 0), (2, 0), (0, -2), (0, 2)])[torch.randint(4, (count,), generator=generator)]
    rows, columns = (torch.arange(side) - directions[:, axis, None] for axis in (0, 1))
    inside = ((rows >= 0) & (rows < side))[:, :, None] & ((columns >= 0) & (columns < side))[:, None]
    images_index = torch.arange(count)[:, None, None]
    shifted = (
        pixels[:, 0][images_index, rows.clamp(0, side - 1)[:, :, None], columns.clamp(0, side - 1)[:, None]] * inside
    )
    noisy = pixels + 25.5 * torch.randn(pixels.shape, generator=generator)
    corners = torch.randint(side - 7, (2, count, 1), generator=generator)
    hidden = [(torch.arange(side) >= at) & (torch.arange(side) < at + 8) for at in corners]
    occluded = pixels * ~(hidden[0][:, None, :, None] & hidden[1][:, None, None])
    kinds = (pixels, shifted[:, None], noisy.clamp(0, 255), occluded)
    mean, deviation = images.first(IMAGES).statistics()
    return {name: normalised_images(kind, mean, deviation) for name, kind in zip(TESTS, kinds, strict=True)}


def hybrid_run(arm: str, seed: int, folder: Path, report: Callable[[str], None]) -> dict[str, Any]:
    """Trains an arm, or continues it, and returns its row."""
    cnn = folder / f"cnn-{seed}"
    run_folder = cnn if arm == "cnn" else folder / f"{arm.replace(', ', '-').replace(' ', '-')}-{seed}"
    recipe = recipe_of(arm, seed, cnn / "network.pt")
    run = train(None if (run_folder / "checkpoint.pt").is_file() else recipe, run_folder, report=report)
    if not run.finished:
        raise KeyboardInterrupt(f"{arm}, seed {seed}, was interrupted")
    network = load(run.network).eval()
    images = read_images_of(recipe.data)
    shares = {name: accuracy(network, kind, images.test_labels) for name, kind in test_variants(images).items()}
    row: dict[str, Any] = {"arm": arm, "seed": seed, **shares, "seconds": round(run.metrics()[-1]["seconds"])}
    if recipe.only:
        from conv2attn.experiments.training.recipe_networks import network_for

        shown_images = test_variants(images.first(None, 100))["clean"]
        layers = transformed_layers(network_for(recipe, images).eval(), network, shown_images)
        row["moved"] = sum(layer.moved[0] for layer in layers) / len(layers)
        row["moved_most"] = max(layer.moved[1] for layer in layers)
        row["alpha"] = sum(layer.alpha for layer in layers) / len(layers)
        row["content"] = sum(layer.content for layer in layers) / len(layers)
    return {name: f"{value:.4f}" if isinstance(value, float) else value for name, value in row.items()}


def complete_hybrids(path: Path, folder: Path, report: Callable[[str], None]) -> "Hybrids":
    """Makes the missing runs, each in its folder, and appends their rows; a restart continues."""
    for arm in HYBRID_ARMS:
        for seed in HYBRID_SEEDS:
            if not any((row["arm"], row["seed"]) == (arm, str(seed)) for row in read_rows(path, HYBRID_COLUMNS)):
                add_row(path, HYBRID_COLUMNS, hybrid_run(arm, seed, folder, report))
    return Hybrids.read(path)


@final
@dataclass(frozen=True, repr=False)
class Hybrids(Report):
    """Accuracies of the four arms: mean and standard error over seeds, and the gain over the CNN trained as long."""

    schema: ClassVar[str] = "conv2attn.hybrids/1"
    rows: tuple[RunRow, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        """The table in a file; see `read_rows`."""
        return cls(tuple(read_rows(path, HYBRID_COLUMNS)))

    def of(self, arm: str, column: str) -> dict[str, float]:
        """The values of a column for an arm, by seed."""
        return {row["seed"]: float(row[column]) for row in self.rows if row["arm"] == arm and row[column]}


@document.register
def _(hybrids: Hybrids, verbose: bool = False) -> Document:
    """A row for each arm."""
    shares: list[tuple[Cell, ...]] = []
    heads: list[tuple[Cell, ...]] = []
    for arm in HYBRID_ARMS:
        cells: list[str] = []
        for test in TESTS:
            accuracies, baseline = hybrids.of(arm, test), hybrids.of("cnn, trained on", test)
            gains = [100 * (accuracies[seed] - baseline[seed]) for seed in accuracies.keys() & baseline.keys()]
            cells.append(mean_and_error([100 * share for share in accuracies.values()]))
            if arm.startswith("hybrid") and gains:
                cells[-1] += f" ({mean_and_error(gains)})"
        seconds = mean_and_error([*hybrids.of(arm, "seconds").values()], 0)
        shares.append((arm, len(hybrids.of(arm, "clean")), *cells, seconds))
        if arm.startswith("hybrid"):
            numbers = (mean_and_error([*hybrids.of(arm, c).values()], 3) for c in HYBRID_COLUMNS[6:10])
            heads.append((arm, *numbers))
    summary = f"{len(hybrids.rows)} of {len(HYBRID_ARMS) * len(HYBRID_SEEDS)} runs are done; accuracies in per cent"
    notes = ("in brackets: the gain over the CNN trained on, seed by seed, +- one standard error.",)
    columns = ("network", "runs", *TESTS, "seconds")
    parts = (Table(columns, tuple(shares), ("seconds", "runs")), Notes(notes))
    head_table = Table(("network", "moved", "at most", "alpha", "content"), tuple(heads))
    return Document((summary,), (*parts, head_table))
