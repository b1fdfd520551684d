"""A small table of the paper's experiment: `python studies/small.py RUNS TABLE` trains what RUNS lacks; TABLE has all.

Every row of Tables 1 and 4 and of Figure 14 as published, in proportion: width 100, three layers, 6,000 images of
Fashion-MNIST, 9 epochs. Patches are of 4x4 pixels, not the paper's 2x2, which take five times as long. So the table
shows that every row trains by its whole recipe, and how far the rows are apart so early. It says nothing of the
accuracies after 300 epochs.
"""

import argparse
import csv
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev

from conv2attn.errors import CheckpointError
from conv2attn.files import write_text_atomically
from conv2attn.report.markup import markdown_table, to_csv
from studies.paper import ROWS

SEEDS = (0, 1, 2)
OPTIONS = {
    "--data": "fashion-mnist",
    "--width": "100",
    "--layers": "3",
    "--patch": "4",
    "--train-images": "6000",
    "--test-images": "2000",
    "--epochs": "9",
}
COLUMNS = ("row", "seed", "last", "best", "seconds")
Row = dict[str, str]


def run_of(folder: Path, row: str, seed: int) -> Row | None:
    """The row of a run that has trained all its epochs: accuracies in per cent, seconds of the clock."""
    file = folder / str(seed) / row / "metrics.csv"
    if not file.exists():
        return None
    with file.open(newline="") as lines:
        epochs = list(csv.DictReader(lines))
    if len(epochs) < int(OPTIONS["--epochs"]):
        return None
    accuracies = [100 * float(epoch["test_accuracy"]) for epoch in epochs]
    seconds = float(epochs[-1]["seconds"])
    values = (row, str(seed), f"{accuracies[-1]:.2f}", f"{max(accuracies):.2f}", f"{seconds:.0f}")
    return dict(zip(COLUMNS, values, strict=True))


def read(table: Path) -> list[Row]:
    """The rows of a table."""
    with table.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    if not rows or tuple(rows[0]) != COLUMNS:
        raise CheckpointError(
            "C2A303", f"{table} is no table of the columns {', '.join(COLUMNS)}", "Write one by this script."
        )
    return rows


def page_of(rows: list[Row]) -> str:
    """The table of a page: the mean of the seeds, and its standard error where there are two or more."""
    cells = []
    for name in ROWS:
        runs = [row for row in rows if row["row"] == name]
        if runs:
            cells.append(
                [name, f"{len(runs)} of {len(SEEDS)}", *(accuracy(runs, column) for column in ("last", "best"))]
            )
    return markdown_table(["row", "runs", "ours, %", "best, %"], cells)


def accuracy(runs: list[Row], column: str) -> str:
    """Mean +- standard error of a column."""
    values = [float(run[column]) for run in runs]
    error = f" +- {stdev(values) / len(values) ** 0.5:.1f}" if len(values) > 1 else ""
    return f"{mean(values):.1f}{error}"


def main(arguments: list[str] | None = None) -> None:
    """Trains the runs that the folder lacks, seed by seed, and writes the table of those that are done."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("table", type=Path)
    given = parser.parse_args(arguments)
    options = [word for option in OPTIONS.items() for word in option]
    for seed in SEEDS:
        words = ["experiments", *options, "--seed", str(seed), "-o", str(given.runs / str(seed))]
        # The command has said what is wrong; what it trained stays, and the next call goes on from there.
        if code := subprocess.run([sys.executable, "-m", "studies.paper", *words]).returncode:
            sys.exit(code)
    done = [run for seed in SEEDS for name in ROWS if (run := run_of(given.runs, name, seed))]
    write_text_atomically(given.table, to_csv(done), force=True)  # a table of fewer runs is replaced
    print(page_of(done))


if __name__ == "__main__":
    main()
