"""The command on files: inspect."""

import sys
from pathlib import Path

import click

from conv2attn.cli.group import main
from conv2attn.cli.options import reporting, sizing
from conv2attn.cli.paths import Read
from conv2attn.cli.reports import Showing


@main.command("inspect", example="conv2attn inspect resnet18.pt")
@click.argument("file", type=Read())
@sizing
@reporting
def inspect_file(file: str, max_size: float, showing: Showing) -> None:
    """Say what FILE is and what it holds, without running anything.

    The report names the networks that the weights fit, and what is unsafe to load; with -v, each tensor.
    """
    from conv2attn.checkpoints.inspection import inspected
    from conv2attn.checkpoints.options import Reading

    result = inspected(Path(file), Reading(max_size=max_size).options()["max_size"])
    showing.finish(result)
    sys.exit(result.exit_code)
