"""Every row of Tables 1 and 4 trained one after the other, and their table and figures: `reproduce experiments`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from conv2attn.errors import UsageError
from conv2attn.files import load, save
from conv2attn.files.atomic_files import write_text_atomically
from conv2attn.lab.figures.drawing import draw_figures
from conv2attn.lab.pruning import prune_degenerate
from conv2attn.lab.tables import Tables, reproduce_tables
from conv2attn.lab.training import train
from conv2attn.lab.training.run_folder import CHECKPOINT, TrainingRun
from conv2attn.lab.training_recipe import TrainingRecipe

PRUNED_FILE = "pruned.pt"
"""The network that the pruned run starts from, in the folder of the run that it continues."""
KINDS = {
    "resnet": ("resnet", "vr"),
    "quadratic": ("quadratic", "vr"),
    "generalised": ("generalised", "vr"),
    "pruned": ("generalised", "vr"),
    "learned": ("learned", "vr"),
    "content": ("learned", "qk+qr"),
}
"""The kind of the network and the terms of its scores, by the key of its row; in the order of training."""


def recipes(common: TrainingRecipe, folder: Path) -> dict[str, TrainingRecipe]:
    """The recipe of each row: `common`, but for the network.

    The pruned network goes on from the generalised one at a tenth of its rate (App. E), for as many epochs: the paper
    does not say how many. The ResNet has the steps of its own recipe and no warm-up, which Table 2 gives to attention
    alone: Fig. 2 compares the first epochs.
    """
    made = {key: replace(common, kind=kind, terms=terms) for key, (kind, terms) in KINDS.items()}
    start = str(folder / "generalised" / PRUNED_FILE)
    made["pruned"] = replace(made["pruned"], start=start, learning_rate=common.learning_rate / 10)
    made["resnet"] = replace(made["resnet"], warm_up=0.0, milestones=milestones_of(common))
    return made


def milestones_of(common: TrainingRecipe) -> tuple[int, ...]:
    """The epochs after which the rate of the ResNet falls: the default ones as shares of the run, others as they are.

    The default milestones are those of 300 epochs. A shorter run that kept them would train the ResNet at its highest
    rate to the end, beside attention whose rate falls to 0.
    """
    default = TrainingRecipe("resnet")
    if common.milestones != default.milestones:
        return common.milestones
    scaled = (round(milestone * common.epochs / default.epochs) for milestone in default.milestones)
    return tuple(sorted({max(1, epoch) for epoch in scaled}))


def train_paper(
    common: TrainingRecipe, folder: Path, report: Callable[[str], None], device: str = "cpu", **options: int | None
) -> Tables | None:
    """Trains the rows that are not done yet, and writes `tables.md` and `figures/` into `folder`.

    A run that was interrupted continues, to the numbers of an unbroken one.

    Args:
        common: the recipe of all rows; its kind and terms are not read.
        options: of each call of `train`.
    Returns:
        The tables, or None where a run was interrupted.
    Raises:
        UsageError: a folder holds a run of another recipe (C2A004).
    """
    runs: dict[str, TrainingRun] = {}
    for key, recipe in recipes(common, folder).items():
        run = TrainingRun(folder / key)
        begun = (run.folder / CHECKPOINT).is_file()
        if begun and run.recipe != recipe:
            raise UsageError(
                "C2A004",
                f"{run.folder} holds a run of another recipe",
                "Pass the options of that run, or another folder.",
            )
        if recipe.start is not None and not Path(recipe.start).exists():
            pruned, _ = prune_degenerate(load(runs["generalised"].network))
            save(pruned, recipe.start)
        if not (begun and run.finished):
            report(f"{key}: {'continued' if begun else 'begun'} in {run.folder}")
            run = train(None if begun else recipe, run.folder, device=device, report=report, **options)
        if not run.finished:
            return None
        runs[key] = run
    return write_tables(runs, folder)


def write_tables(runs: Mapping[str, TrainingRun], folder: Path) -> Tables:
    """The tables with the accuracies of the runs, written with the figures."""
    tables = reproduce_tables(runs)
    write_text_atomically(folder / "tables.md", tables.to_markdown(), force=True)
    draw_figures(list(runs.values()), folder / "figures", force=True)
    return tables
