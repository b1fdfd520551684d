"""A table of runs on disk: one row per run, appended as it ends, so that a restart skips finished runs."""

import csv
import errno
import io
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conv2attn.errors import CheckpointError
from conv2attn.files.atomic_files import ROOM

RunRow = dict[str, str]


def read_rows(path: Path, columns: Sequence[str]) -> list[RunRow]:
    """The rows of the table; none if there is no file.

    Raises:
        CheckpointError: there could be no such file (C2A301), or it has other columns (C2A303).
    """
    if not path.exists():
        if not path.parent.is_dir():
            raise CheckpointError("C2A301", f"{path.parent} is not a folder", "Make it first, or choose another.")
        return []
    if not path.is_file():
        raise CheckpointError("C2A301", f"{path} is not a file", "Name another file.")
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
    if set(reader.fieldnames or columns) != set(columns) or any(None in row or None in row.values() for row in rows):
        reason = f"{path} is not a table with the columns {', '.join(columns)}"
        raise CheckpointError("C2A303", reason, "Name another file.")
    return rows


def add_row(path: Path, columns: Sequence[str], row: dict[str, Any]) -> None:
    """Appends a row; the first one comes after the names of the columns.

    Raises:
        CheckpointError: it cannot be written (C2A301); the file is then as it was.
    """
    size = path.stat().st_size if path.is_file() else 0
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    if not size:
        writer.writeheader()
    writer.writerow(row)
    try:
        with path.open("ab", buffering=0) as file:
            content = text.getvalue().encode()
            if file.write(content) < len(content):
                file.truncate(size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        reason = f"{path} cannot be written: {error.strerror}"
        raise CheckpointError("C2A301", reason, ROOM) from error


def mean_and_error(values: Sequence[float], digits: int = 2) -> str:
    """The mean and its standard error, where there are values and several.

    >>> mean_and_error([1.0, 2.0, 3.0]), mean_and_error([1.0]), mean_and_error([])
    ('2.00 +- 0.58', '1.00', '-')
    """
    if not values:
        return "-"
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} +- {statistics.stdev(values) / len(values) ** 0.5:.{digits}f}"
