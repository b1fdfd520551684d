"""The table of the experiment on starts: a file of rows, one per run, which grows as runs end; and its curves."""

import hashlib
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self, final

from conv2attn.errors import UsageError
from conv2attn.extras import optional
from conv2attn.lab.figures.drawing import draw_curve
from conv2attn.lab.run_rows import RunRow, add_row, mean_and_error, read_rows
from conv2attn.lab.starts.runs import CURVE, RunKey, run_start
from conv2attn.lab.starts.starts_plan import (
    ANCHORS,
    CHOSEN_AT,
    RATE_SEED,
    START_ARMS,
    START_RATES,
    START_SEEDS,
    TASKS,
    TRAINING_SIZES,
    TrainingSize,
)
from conv2attn.report import Cell, Document, Notes, Report, Table, document

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEANINGS = {
    "data": "data set; /timm: learned by timm's vision transformer with a class token, on patches of 2x2 pixels",
    "images": "training images, the first ones",
    "epochs": "how often they are seen",
    "arm": "the start",
    "rate": "highest learning rate",
    "seed": "of weights, order and mirroring",
    "held_out": "training images, the last ones, on which the run is evaluated; 0: on the test images",
    "accuracy": "share of the images of the evaluation that are classified right, after the last epoch",
    "heads": "heads of the network",
    "shifts_before": "heads with a quarter of their attention at one displacement, before training",
    "shifts_after": "the same after training",
    "mass_before": "mean attention of planted heads at their offset, before training; empty where none is planted",
    "mass_after": "the same after training",
    "kept": "planted heads that attend most at their offset after training",
    "seconds": "processor time",
    "curve": f"accuracy on the first {CURVE} images of the evaluation, after each epoch",
}
"""The columns of the table."""
START_COLUMNS = tuple(MEANINGS)


def rate_keys(data: str) -> list[RunKey]:
    """The runs that choose the rate of each arm that is trained on a data set."""
    images, epochs, held_out = CHOSEN_AT[data]
    trained = {arm for size in TRAINING_SIZES if size.data == data for arm in size.arms}
    arms = [arm for arm in START_ARMS if arm in trained]
    return [RunKey(data, images, epochs, arm, rate, RATE_SEED, held_out) for arm in arms for rate in START_RATES]


def accuracies_of(rows: Sequence[RunRow]) -> dict[tuple[str, ...], float]:
    """The accuracy of each run, by the texts of its `RunKey`."""
    return {tuple(row[name] for name in RunKey.__dataclass_fields__): float(row["accuracy"]) for row in rows}


def best_rate(rows: Sequence[RunRow], data: str, arm: str) -> float | None:
    """The rate of an arm with the highest accuracy on the validation split; None while one is missing."""
    keys = [key for key in rate_keys(data) if key.arm == arm]
    accuracies = accuracies_of(rows)
    if any(key.text not in accuracies for key in keys):
        return None
    return max(keys, key=lambda key: accuracies[key.text]).rate


def missing_runs(rows: Sequence[RunRow], part: int = 0, parts: int = 1, data: str | None = None) -> Iterator[RunKey]:
    """The runs that are still to be done, in the order of the plan, as far as rates are known; of every parts-th arm,
    from the part-th on, and on the data of one name or on all.
    """
    done = accuracies_of(rows)
    for size in TRAINING_SIZES:
        if data not in (None, size.data):
            continue
        arms = [arm for arm in size.arms if START_ARMS.index(arm) % parts == part]
        rates = {arm: best_rate(rows, size.data, arm) for arm in arms}
        keys = [key for key in rate_keys(size.data) if key.arm in arms and rates[key.arm] is None]
        for seed in size.seeds:
            chosen = [(arm, rate) for arm, rate in rates.items() if rate is not None]
            keys += [RunKey(size.data, size.images, size.epochs, arm, rate, seed) for arm, rate in chosen]
        yield from (key for key in keys if key.text not in done)


def complete_starts(
    path: Path, report: Callable[[str], None], part: int = 0, parts: int = 1, data: str | None = None
) -> "Starts":
    """Makes the missing runs, and appends each row as it ends; a restart continues.

    Args:
        part, parts: processes may share the work by arms.
        data: a name of the column `data`, to do only its runs.
    Raises:
        UsageError: there is no such name (C2A002).
    """
    if data not in (None, *TASKS):
        reason = f"--data {data} is not one of {', '.join(TASKS)}"
        raise UsageError("C2A002", reason, "Pass one of them, or leave --data out.")
    while (key := next(missing_runs(read_rows(path, START_COLUMNS), part, parts, data), None)) is not None:
        row = run_start(key)
        add_row(path, START_COLUMNS, row)
        report(" ".join((*key.text, f"{row['accuracy']:.4f}", f"{row['seconds']} s")))
    return Starts.read(path)


@final
@dataclass(frozen=True, repr=False)
class Starts(Report):
    """The accuracy of each start: mean and standard error over seeds, and the gain over the default, seed by seed."""

    schema: ClassVar[str] = "conv2attn.starts/1"
    rows: tuple[RunRow, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        """The table in a file; see `read_rows`."""
        return cls(tuple(read_rows(path, START_COLUMNS)))

    def runs_of(self, size: TrainingSize, arm: str) -> dict[str, RunRow]:
        """The runs of an arm at a size, by seed."""
        values, seeds = (size.data, str(size.images), str(size.epochs), arm, "0"), {*map(str, size.seeds)}
        names = ("data", "images", "epochs", "arm", "held_out")
        rows = (row for row in self.rows if tuple(row[name] for name in names) == values)
        return {row["seed"]: row for row in rows if row["seed"] in seeds}


@document.register
def _(starts: Starts, verbose: bool = False) -> Document:
    """A row for each arm and size, and the accuracies by which rates were chosen; verbose: rows and columns too."""
    columns = ("images x epochs", "start", "rate", "runs", "accuracy", "gain", "shifts", "kept")
    rows = tuple(arm_cells(starts, size, arm) for size in TRAINING_SIZES for arm in size.arms if not size.anchors)
    controls = tuple(control_cells(starts, size, arm) for size in TRAINING_SIZES for arm in size.arms if size.anchors)
    done = sum(len(starts.runs_of(size, arm)) for size in TRAINING_SIZES for arm in size.arms)
    planned = sum(len(size.arms) * len(size.seeds) for size in TRAINING_SIZES)
    compared = sum(cell != "-" for row in controls for cell in row[4:])
    summary = f"{done} of {planned} runs are done; accuracies in per cent of the test images, +- one standard error"
    notes = (
        "rate: the one that is best on a validation split. gain: over the default of the same seed and draw.",
        "shifts: heads with a quarter of their attention at one displacement, before > after training.",
        "kept: planted heads that attend most at their offset after training.",
    )
    accuracies, keys = accuracies_of(starts.rows), [key for data in CHOSEN_AT for key in rate_keys(data)]
    shares = {key: accuracies.get(key.text) for key in keys}
    cells = {key: "-" if share is None else f"{100 * share:.2f}" for key, share in shares.items()}
    rates = tuple(
        (data, arm, *(cell for key, cell in cells.items() if (key.data, key.arm) == (data, arm)))
        for data in CHOSEN_AT
        for arm in START_ARMS
        if any((key.data, key.arm) == (data, arm) for key in keys)
    )
    rate_table = Table(("data", "start", *(f"validation at {rate:g}" for rate in START_RATES)), rates)
    tested, chosen = sum(row["held_out"] == "0" for row in starts.rows), sum(s is not None for s in shares.values())
    counts = f"{tested} on the test images, {chosen} that chose a rate, {len(starts.rows) - tested - chosen} of rates"
    details = (
        Notes((f"{len(starts.rows)} rows: {counts} dropped",)),
        Table(("column", "what it is"), (*MEANINGS.items(),)),
    )
    return Document(
        (summary,),
        (
            Table(columns, rows, ("runs", "kept", "shifts")),
            Notes(notes),
            *([Table(("images x epochs", "start", "runs", "accuracy", *OVER), controls)] if controls else []),
            *([Notes((f"over: gain over this start, seed by seed; {compared} comparisons.",))] if controls else []),
            rate_table,
            *(details if verbose else ()),
        ),
    )


OVER = tuple(f"over {anchor}" for anchor in ANCHORS)


def control_cells(starts: Starts, size: TrainingSize, arm: str) -> tuple[Cell, ...]:
    """The row of an arm beside the anchors of its size: training set, arm, runs, accuracy, gain over each anchor."""
    shares = {
        each: {seed: 100 * float(row["accuracy"]) for seed, row in starts.runs_of(size, each).items()}
        for each in (arm, *size.anchors)
    }
    gains = [
        mean_and_error(
            [shares[arm][seed] - shares[anchor][seed] for seed in sorted(shares[arm].keys() & shares[anchor])]
        )
        if anchor != arm and anchor in size.anchors
        else "-"
        for anchor in ANCHORS
    ]
    runs = f"{len(shares[arm])} of {len(size.seeds)}"
    return (f"{size.data} {size.images} x {size.epochs}", arm, runs, mean_and_error([*shares[arm].values()]), *gains)


def arm_cells(starts: Starts, size: TrainingSize, arm: str) -> tuple[Cell, ...]:
    """The row of an arm: training set, arm, rate, runs, accuracy, gain over the default of the same draw, shifts, kept.

    Shifts are mean counts of heads, before and after training; kept counts planted heads that kept their offset.
    """
    default = "default" + "".join(arm.partition("/")[1:])
    runs, plain = starts.runs_of(size, arm), starts.runs_of(size, default)
    head = (f"{size.data} {size.images} x {size.epochs}", arm)
    if not runs:
        return (*head, "-", f"0 of {len(START_SEEDS)}", "-", "-", "-", "-")
    first = next(iter(runs.values()))
    accuracies = {seed: 100 * float(row["accuracy"]) for seed, row in runs.items()}
    both = sorted(runs.keys() & plain.keys()) if arm != default else []
    gains = [accuracies[seed] - 100 * float(plain[seed]["accuracy"]) for seed in both]
    before, after = (
        statistics.fmean(float(row[f"shifts_{when}"]) for row in runs.values()) for when in ("before", "after")
    )
    planted = [float(row["kept"]) for row in runs.values() if row["kept"]]
    kept = f"{statistics.fmean(planted):.0f} of {first['heads']}" if planted else "-"
    rate = f"{first['rate']} "  # as text: numbers are cut to two digits
    means = mean_and_error([*accuracies.values()]), mean_and_error(gains)
    return (*head, rate, f"{len(runs)} of {len(START_SEEDS)}", *means, f"{before:.0f} > {after:.0f}", kept)


def mean_curves(starts: Starts, size: TrainingSize) -> dict[str, list[float]]:
    """For each arm that has runs at a size, the mean over its seeds of the accuracy after each epoch, in per cent."""
    curves = {}
    for arm in size.arms:
        runs = [[100 * float(share) for share in row["curve"].split()] for row in starts.runs_of(size, arm).values()]
        if runs:
            curves[arm] = [statistics.fmean(epoch) for epoch in zip(*runs, strict=True)]
    return curves


def draw_start_curves(starts: Starts) -> "Figure":
    """A panel for each training set that is seen more than once and has runs."""
    drawn = [(size, curves) for size in TRAINING_SIZES if size.epochs > 1 and (curves := mean_curves(starts, size))]
    figure: Figure = optional("matplotlib.figure").Figure(figsize=(3.2 * max(1, len(drawn)), 3), layout="constrained")
    panels = figure.subplots(1, max(1, len(drawn)), squeeze=False)[0]
    for panel, (size, curves) in zip(panels, drawn, strict=False):
        for arm, accuracies in curves.items():
            draw_curve(panel, START_ARMS.index(arm), arm, range(1, size.epochs + 1), accuracies)
        panel.set_title(f"{size.images} images of {size.data}", fontsize=8)
        panel.set(xlabel="epoch", ylabel="accuracy in %")
        panel.legend(fontsize=6)
    return figure


def digest_of(starts: Starts) -> str:
    """A digest of the curves, which the file of the figure carries."""
    text = repr([(astuple(size), mean_curves(starts, size)) for size in TRAINING_SIZES])
    return hashlib.sha256(text.encode()).hexdigest()
