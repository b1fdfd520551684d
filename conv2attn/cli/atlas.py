"""The command that measures the heads of many models: atlas."""

import sys
from pathlib import Path

import click

from conv2attn.cli.group import main
from conv2attn.cli.paths import Read


@main.command("atlas", example="conv2attn atlas models.toml -o atlas")
@click.argument("models", type=Read())
@click.option(
    "-o", "--output", type=click.Path(), metavar="FOLDER", required=True, help="Where to write the page and its tables."
)
def atlas(models: str, output: str) -> None:
    """Measure the heads of every model in a list, and write a page.

    MODELS is a TOML file of models: for each a name, a kind, the file of a network or `file.py:factory`, inputs, and
    beside all, the thresholds. Each model runs in a process of its own, and once more with seeded, untrained weights.
    The folder receives index.md, heads.csv, atlas.json and one JSON file a model. A second run measures only what is
    new.
    """
    from conv2attn.experiments.atlas_runs import atlas as made

    command = f"conv2attn atlas {Path(models).name} -o {Path(output).name}"
    found = made(Path(models), Path(output), command, lambda line: click.echo(line, err=True))
    click.echo(f"{len(found['models'])} measured, {len(found['failed'])} failed: {Path(output) / 'index.md'}")
    sys.exit(3 if found["failed"] else 0)
