"""The command on files: inspect."""

import sys
from pathlib import Path

import click

from conv2attn.cli.group import main
from conv2attn.cli.options import reporting
from conv2attn.cli.reports import check_free, finish


@main.command("inspect")
@click.argument("file", type=click.Path())
@click.option("--output", type=click.Path(), help="Write the report to a file instead of stdout.")
@reporting
def inspect_file(file: str, output: str | None, form: str, report: str | None, force: bool) -> None:
    """Say what FILE is, which networks its weights fit, what is in it, and what in it is unsafe; run nothing."""
    from conv2attn.checkpoints.inspection import inspected

    check_free(force, output, report, read=(file,))
    result = inspected(Path(file))
    finish(result, form, report, force, output)
    sys.exit(result.exit_code)
