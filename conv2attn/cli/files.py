"""The command on files: inspect."""

import sys
from pathlib import Path

import click

from conv2attn.cli.group import main
from conv2attn.cli.options import reporting
from conv2attn.cli.reports import Showing


@main.command("inspect", example="conv2attn inspect resnet18.pt")
@click.argument("file", type=click.Path())
@reporting
def inspect_file(file: str, showing: Showing) -> None:
    """Say what FILE is and what it holds, without running anything.

    The report names the networks that the weights fit, and what is unsafe to load; with -v, each tensor.
    """
    from conv2attn.checkpoints.inspection import inspected

    showing.check(read=(file,))
    result = inspected(Path(file))
    showing.finish(result)
    sys.exit(result.exit_code)
