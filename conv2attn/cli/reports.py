"""Where reports go: to the screen, to files, and never over what is there."""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

import click

from conv2attn.errors import CheckpointError, UsageError

if TYPE_CHECKING:
    from conv2attn.report import Report

WIDTH = 80
SUFFIXES = {
    ".json": "json",
    ".md": "markdown",
    ".html": "html",
    ".svg": "svg",
    ".tex": "latex",
    ".csv": "csv",
    ".txt": "text",
}
"""The forms of a report by the suffix of its file."""


def check_free(force: bool, *paths: str | Path | None, read: tuple[str | None, ...] = ()) -> None:
    """Refuses, before any work is done, what could not be written after it, and what would destroy what is `read`.

    Raises:
        CheckpointError: a file is there and not to be overwritten (C2A305), or its folder is not, or takes no files
            (C2A301).
        UsageError: one file is to hold two things (C2A004).
    """
    wanted = [Path(path) for path in paths if path is not None]
    needed = [Path(path).resolve() for path in read if path is not None]
    for place, path in enumerate(wanted):
        if path.resolve() in needed:
            raise UsageError("C2A004", f"{path} is read by this call, and would be overwritten", "Name another file.")
        if path.resolve() in [other.resolve() for other in wanted[:place]]:
            raise UsageError("C2A004", f"{path} is to hold both the report and something else", "Name two files.")
        if path.exists() and not force:
            raise CheckpointError("C2A305", f"{path} exists")
        if not path.parent.is_dir():
            raise CheckpointError("C2A301", f"{path.parent} is not a folder")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise CheckpointError("C2A301", f"{path} cannot be written: its folder takes no files from this user")


@final
@dataclass(frozen=True)
class Showing:
    """How a report is shown and where it is written, as the options say."""

    form: str
    report: str | None
    force: bool
    verbose: bool
    quiet: bool
    wide: bool

    def check(self, *written: str | Path | None, read: tuple[str | None, ...] = ()) -> None:
        """Refuses, before any work is done, what could not be written after it; see `check_free`.

        Raises:
            UsageError: the suffix of the report says no form (C2A308).
        """
        check_free(self.force, *written, self.report, read=read)
        if self.report is not None and Path(self.report).suffix not in SUFFIXES:
            known = ", ".join(SUFFIXES)
            raise UsageError("C2A308", f"--report {self.report} names no form of a report", f"Use one of {known}.")

    def finish(self, result: "Report") -> None:
        """Shows the report, and writes it to a file if asked."""
        if self.quiet:
            click.echo("\n".join(result.document().answer))
        elif self.form == "text":
            click.echo(result.to_text(None if self.wide else columns(), self.verbose, in_colour()), nl=False)
        else:
            click.echo(self.written(result, self.form), nl=False)
        if self.report is not None:
            from conv2attn.checkpoints.writing import write_text_atomically

            write_text_atomically(self.report, self.written(result, SUFFIXES[Path(self.report).suffix]), self.force)

    def written(self, result: "Report", form: str) -> str:
        """The report in a form, with a newline at its end."""
        write = getattr(result, f"to_{form}")
        text: str = write() if form in ("json", "csv") else write(verbose=self.verbose)
        return text.rstrip("\n") + "\n"

    def say(self, line: str) -> None:
        """Says on stderr what was done, unless only the verdict is asked for."""
        if not self.quiet:
            click.echo(line, err=True)


def columns() -> int:
    """The width of the terminal, or what COLUMNS says; 80 where stdout is none."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return shutil.get_terminal_size((WIDTH, 24)).columns
    return WIDTH


def in_colour() -> bool:
    """Whether stdout is a terminal that takes colour; NO_COLOR forbids it."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
