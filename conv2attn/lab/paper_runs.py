"""Every row of Tables 1 and 4 and Figure 14 trained, and their table and figures: `reproduce experiments`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from conv2attn.errors import UsageError
from conv2attn.files import load, save, write_text_atomically
from conv2attn.lab.figures.drawing import draw_figures
from conv2attn.lab.pruning import prune_degenerate
from conv2attn.lab.tables import Tables, reproduce_tables
from conv2attn.lab.training import RECIPES, TrainingRecipe, network_digest, recipes, train
from conv2attn.lab.training.paper_recipes import PRUNED_FILE, Source
from conv2attn.lab.training.run_folder import CHECKPOINT, TrainingRun


def train_paper(
    common: TrainingRecipe,
    folder: Path,
    report: Callable[[str], None],
    device: str = "cpu",
    source: Source = "published",
    **options: int | None,
) -> Tables | None:
    """Trains the rows that are not done yet, and writes `tables.md` and `figures/` into `folder`.

    A run that was interrupted continues, to the numbers of an unbroken one.

    Args:
        common: the data, sizes and length of all rows; see `recipes`.
        source: whose recipe.
        options: of each call of `train`.
    Returns:
        The tables, or None where a run was interrupted.
    Raises:
        UsageError: a folder holds a run of another recipe (C2A004).
    """
    runs: dict[str, TrainingRun] = {}
    for key, recipe in recipes(common, folder, source).items():
        if recipe.start is not None:
            parent = load(runs["generalised"].network)
            recipe = replace(recipe, parent=network_digest(parent))
            start = folder / "generalised" / PRUNED_FILE
            if not start.exists():
                pruned, _ = prune_degenerate(parent, condition=RECIPES[source].condition)
                save(pruned, start)
        run = TrainingRun(folder / key)
        begun = (run.folder / CHECKPOINT).is_file()
        # The parent's digest says what the run starts from; where that file lies now is no part of the recipe.
        if begun and replace(run.recipe, start=recipe.start) != recipe:
            raise UsageError(
                "C2A004",
                f"{run.folder} holds a run of another recipe",
                "Pass the options of that run, or another folder.",
            )
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
