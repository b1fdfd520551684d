"""Where reports go: to the screen, to files, and never over what is there."""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

import click

from conv2attn.suffixes import REPORT

if TYPE_CHECKING:
    from conv2attn.report import Report

WIDTH = 80


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

            form = REPORT[Path(self.report).suffix]
            write_text_atomically(self.report, self.written(result, form), self.force)

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
