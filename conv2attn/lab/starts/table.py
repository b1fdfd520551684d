"""The table of the experiment on starts: a file of rows, one per run, which grows as runs end."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import ClassVar, Self, final

from conv2attn.errors import UsageError
from conv2attn.lab.run_rows import RunRow, add_row, mean_and_error, read_rows
from conv2attn.lab.starts.gains import LEVEL, Gain, corrected_gains, pooled
from conv2attn.lab.starts.runs import CURVE, RunKey, run_start
from conv2attn.lab.starts.starts_plan import (
    CHOSEN_AT,
    RATE_SEED,
    START_ARMS,
    START_RATES,
    TASKS,
    TRAINING_SIZES,
    TrainingSize,
)
from conv2attn.report import Cell, Document, Notes, Report, Table, document

MEANINGS = {
    "data": "data set; /timm: by timm's vision transformer of three sizes, a class token, patches of 2x2",
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
TABLE_NOTES = (
    "rate: the one that is best on a validation split. gain: over the default of the same seed and draw.",
    "p: two-sided, by Student's t over the gains of the seeds; behind the comma corrected by Holm for {} comparisons.",
    "shifts: heads with a quarter of their attention at one displacement, before > after training.",
    "kept: planted heads that attend most at their offset after training.",
)
COMPARED_WITH = tuple(dict.fromkeys(anchor for size in TRAINING_SIZES for anchor in size.anchors))


def rate_keys(data: str) -> list[RunKey]:
    """The runs that choose the rate of each arm that is trained on a data set."""
    images, epochs, held_out = CHOSEN_AT[data]
    arms = {arm for size in TRAINING_SIZES if size.data == data for arm in size.arms}
    every = product(sorted(arms, key=START_ARMS.index), START_RATES)
    return [RunKey(data, images, epochs, arm, rate, RATE_SEED, held_out) for arm, rate in every]


def accuracies_of(rows: Sequence[RunRow]) -> dict[tuple[str, ...], float]:
    """The accuracy of each run, by the texts of its `RunKey`."""
    return {tuple(row[name] for name in RunKey.__dataclass_fields__): float(row["accuracy"]) for row in rows}


def missing_runs(rows: Sequence[RunRow], data: str | None = None) -> Iterator[RunKey]:
    """The runs that are still to be done, in the order of the plan, on the data of one name or on all.

    An arm is run on the validation split first, and then by the rate that was best there.
    """
    done = accuracies_of(rows)
    for size in (size for size in TRAINING_SIZES if data in (None, size.data)):
        keys, best = list[RunKey](), dict[str, float]()
        for arm in size.arms:
            tried = [key for key in rate_keys(size.data) if key.arm == arm]
            if all(key.text in done for key in tried):
                best[arm] = max(tried, key=lambda key: done[key.text]).rate
            else:
                keys += tried
        for seed, (arm, rate) in product(size.seeds, best.items()):
            keys.append(RunKey(size.data, size.images, size.epochs, arm, rate, seed))
        yield from (key for key in keys if key.text not in done)


def complete_starts(path: Path, report: Callable[[str], None], data: str | None = None) -> "Starts":
    """Makes the missing runs, and appends each row as it ends; a restart continues.

    Args:
        data: a name of the column `data`, to do only its runs.
    Raises:
        UsageError: the name is unknown (C2A002).
    """
    if data not in (None, *TASKS):
        reason = f"--data {data} is not one of {', '.join(TASKS)}"
        raise UsageError("C2A002", reason, "Pass one of them, or leave --data out.")
    while (key := next(missing_runs(read_rows(path, START_COLUMNS), data), None)) is not None:
        row = run_start(key)
        add_row(path, START_COLUMNS, row)
        report(" ".join((*key.text, f"{row['accuracy']:.4f}", f"{row['seconds']} s")))
    return Starts.read(path)


Comparison = tuple[TrainingSize, str, str]
"""A size, an arm, and the arm that it is compared with."""


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

    def accuracies(self, size: TrainingSize, arm: str) -> dict[str, float]:
        """The accuracy of each run of an arm at a size in per cent, by seed."""
        return {seed: 100 * float(row["accuracy"]) for seed, row in self.runs_of(size, arm).items()}

    def gain(self, size: TrainingSize, arm: str, anchor: str) -> Gain:
        """The gain of an arm over another, seed by seed."""
        return Gain.of(self.accuracies(size, arm), self.accuracies(size, anchor))

    def gains_over_default(self) -> dict[Comparison, Gain]:
        """Of the sizes without anchors, the gain of each arm over the default of the same draw."""
        arms = [(size, arm) for size in TRAINING_SIZES if not size.anchors for arm in size.arms]
        pairs = [(size, arm, default_of(arm)) for size, arm in arms if arm != default_of(arm)]
        return corrected_gains({pair: self.gain(*pair) for pair in pairs})

    def gains_over_anchors(self) -> dict[Comparison, Gain]:
        """Of the other sizes, the gain of each arm over each anchor, both ways; a pair is one comparison, not two."""
        gains: dict[Comparison, Gain] = {}
        for size in TRAINING_SIZES:
            for arm, anchor in product(size.arms, size.anchors):
                if arm != anchor and (size, anchor, arm) not in gains:
                    gains[size, arm, anchor] = self.gain(size, arm, anchor)
        gains = corrected_gains(gains)
        return gains | {(size, anchor, arm): gain.reversed() for (size, arm, anchor), gain in gains.items()}

    def pooled_gains(self) -> dict[Comparison, Gain]:
        """The comparisons that stand in both tables, of ten seeds, five in each."""
        again: dict[tuple[str, str, str], list[Comparison]] = {}
        for size, arm, anchor in (*self.gains_over_default(), *self.gains_over_anchors()):
            again.setdefault((size.text, arm, anchor), []).append((size, arm, anchor))
        twice = [comparisons for comparisons in again.values() if len(comparisons) > 1]
        return corrected_gains({several[0]: pooled([self.gain(*each) for each in several]) for several in twice})


def default_of(arm: str) -> str:
    """The default of the same draw."""
    return "default" + "".join(arm.partition("/")[1:])


@document.register
def _(starts: Starts, verbose: bool = False) -> Document:
    """A row for each arm and size, and the accuracies by which rates were chosen; verbose: rows and columns too."""
    arms = [(size, arm) for size in TRAINING_SIZES for arm in size.arms]
    done, planned = sum(len(starts.runs_of(*each)) for each in arms), sum(len(size.seeds) for size, _ in arms)
    summary = f"{done} of {planned} runs are done; accuracies in per cent of the test images, +- one standard error"
    over_default, over_anchors = starts.gains_over_default(), starts.gains_over_anchors()
    controls = tuple(control_cells(starts, over_anchors, size, arm) for size, arm in arms if size.anchors)
    accuracies, rates = accuracies_of(starts.rows), dict[tuple[str, str], list[str]]()
    for key in (key for data in CHOSEN_AT for key in rate_keys(data)):
        share = accuracies.get(key.text)
        rates.setdefault((key.data, key.arm), []).append("-" if share is None else f"{100 * share:.2f}")
    blocks: list[Table | Notes] = [
        Table(
            ("images x epochs", "start", "rate", "runs", "accuracy", "gain", "shifts", "kept"),
            tuple(arm_cells(starts, over_default, size, arm) for size, arm in arms if not size.anchors),
            ("runs", "kept", "shifts"),
        ),
        Notes((*(note.format(number_tested(over_default)) for note in TABLE_NOTES), clear_gains(over_default))),
    ]
    if controls:
        blocks.append(
            Table(
                ("images x epochs", "start", "runs", "accuracy", *(f"over {each}" for each in COMPARED_WITH)), controls
            )
        )
        tested = number_tested(over_anchors) // 2
        over = f"over: gain over this start, seed by seed; p corrected for {tested} comparisons of two."
        blocks.append(Notes((over, clear_gains(over_anchors))))
    if again := starts.pooled_gains():
        rows = ((size.text, f"{arm} over {anchor}", len(g.values), g.text) for (size, arm, anchor), g in again.items())
        blocks.append(Table(("images x epochs", "in both tables", "runs", "pooled gain"), tuple(rows)))
    columns = ("data", "start", *(f"validation at {rate:g}" for rate in START_RATES))
    blocks.append(Table(columns, tuple((*each, *cells) for each, cells in rates.items())))
    if verbose:
        evaluated = sum(row["held_out"] == "0" for row in starts.rows)
        chosen = sum(cell != "-" for cells in rates.values() for cell in cells)
        dropped = len(starts.rows) - evaluated - chosen
        counts = f"{evaluated} on the test images, {chosen} that chose a rate, {dropped} of rates dropped"
        blocks.append(Notes((f"{len(starts.rows)} rows: {counts}",)))
        blocks.append(Table(("column", "what it is"), (*MEANINGS.items(),)))
    return Document((summary,), tuple(blocks))


def number_tested(gains: Mapping[Comparison, Gain]) -> int:
    """How many of the comparisons have runs enough to be tested."""
    return sum(gain.p is not None for gain in gains.values())


def clear_gains(gains: Mapping[Comparison, Gain]) -> str:
    """The sentence on the gains above zero that are clear of it after correction."""
    clear = [
        f"{arm} over {anchor} at {size.text}"
        for (size, arm, anchor), gain in gains.items()
        if gain.clear and statistics.fmean(gain.values) > 0
    ]
    return f"corrected p of at most {LEVEL:g}: {'; '.join(clear) or 'none'}."


def control_cells(
    starts: Starts, gains_over: Mapping[Comparison, Gain], size: TrainingSize, arm: str
) -> tuple[Cell, ...]:
    """The row of an arm beside the anchors of its size: training set, arm, runs, accuracy, gain over each anchor."""
    gains = [gains_over.get((size, arm, anchor), Gain(())).text for anchor in COMPARED_WITH]
    shares = [*starts.accuracies(size, arm).values()]
    return (size.text, arm, f"{len(shares)} of {len(size.seeds)}", mean_and_error(shares), *gains)


def arm_cells(starts: Starts, gains: Mapping[Comparison, Gain], size: TrainingSize, arm: str) -> tuple[Cell, ...]:
    """The row of an arm: training set, arm, rate, runs, accuracy, gain over the default of the same draw, shifts, kept.

    Shifts are mean counts of heads, before and after training; kept counts planted heads that kept their offset.
    """
    runs = [*starts.runs_of(size, arm).values()]
    done = f"{len(runs)} of {len(size.seeds)}"
    if not runs:
        return (size.text, arm, "-", done, "-", "-", "-", "-")
    shifts = " > ".join(
        f"{statistics.fmean(float(row[column]) for row in runs):.0f}" for column in ("shifts_before", "shifts_after")
    )
    planted = [float(row["kept"]) for row in runs if row["kept"]]
    kept = f"{statistics.fmean(planted):.0f} of {runs[0]['heads']}" if planted else "-"
    rate = f"{runs[0]['rate']} "  # as text: numbers are cut to two digits
    accuracy = mean_and_error([*starts.accuracies(size, arm).values()])
    gain = gains.get((size, arm, default_of(arm)), Gain(())).text
    return (size.text, arm, rate, done, accuracy, gain, shifts, kept)
