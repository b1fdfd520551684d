"""Where reports go: to the screen, to files, and never over what is there."""

import os
from pathlib import Path
from typing import Any

import click

from conv2attn.errors import CheckpointError, UsageError


def check_free(force: bool, *paths: str | Path | None, read: tuple[str | None, ...] = ()) -> None:
    """Refuses, before any work is done, what could not be written after it, and what would destroy what is `read`.

    Raises:
        CheckpointError: a file is there and not to be overwritten (C2A305), or its folder is not, or takes no files
            (C2A301).
        UsageError: one file is to hold two things (C2A001).
    """
    wanted = [Path(path) for path in paths if path is not None]
    needed = [Path(path).resolve() for path in read if path is not None]
    for place, path in enumerate(wanted):
        if path.resolve() in needed:
            raise UsageError("C2A001", f"{path} is read by this call, and would be overwritten", "Name another file.")
        if path.resolve() in [other.resolve() for other in wanted[:place]]:
            raise UsageError("C2A001", f"{path} is to hold both the report and something else", "Name two files.")
        if path.exists() and not force:
            raise CheckpointError("C2A305", f"{path} exists")
        if not path.parent.is_dir():
            raise CheckpointError("C2A301", f"{path.parent} is not a folder")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise CheckpointError("C2A301", f"{path} cannot be written: its folder takes no files from this user")


def finish(
    certificate: Any, form: str, report: str | None, force: bool, output: str | None = None, *, verbose: bool = False
) -> None:
    """Shows the report in the form asked for, and writes the JSON beside it if asked."""
    write = getattr(certificate, f"to_{form}")
    emit(write(verbose=True) if verbose and form != "json" else write(), output, force)
    if report:
        emit(certificate.to_json(), report, force)


def emit(text: str, output: str | None, force: bool) -> None:
    """Prints `text`, or writes it to a file."""
    if output is None:
        click.echo(text.rstrip("\n"))
        return
    from conv2attn.checkpoints.writing import write_text_atomically

    write_text_atomically(output, text, force)
