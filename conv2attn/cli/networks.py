"""The commands that convert: convert, demo."""

import sys
from pathlib import Path
from typing import Any

import click

from conv2attn.cli.group import main
from conv2attn.cli.options import reading_images, reporting, running
from conv2attn.cli.reports import check_free, finish


@main.command()
@click.argument("model", type=click.Path())
@click.option("-o", "--output", type=click.Path(), help="File to write; MODEL with .attn before its suffix by default.")
@click.option("--alpha", default="auto", show_default=True, help="Sharpness of the heads, or auto.")
@click.option("--encoding", default="quadratic", show_default=True, help="quadratic or enumerated.")
@click.option("--stride-by", default="queries", show_default=True, help="queries or pooling.")
@click.option("--only", multiple=True, metavar="GLOB", help="Convert only layers whose name fits; repeatable.")
@click.option("--skip", multiple=True, metavar="GLOB", help="Leave layers whose name fits; repeatable.")
@click.option("--engine", help="Order of evaluation in a .pt2 or .onnx file: separable, conv, gather or dense.")
@click.option("--keep-refuted", is_flag=True, help="Write the network, marked, even if it was refuted.")
@reading_images
@running
@reporting
def convert(
    model: str, output: str | None, keep_refuted: bool, form: str, report: str | None, force: bool, **given: Any
) -> None:
    """Convert every convolution of MODEL to multi-head self-attention, check the result, and write it."""
    from conv2attn.checkpoints.saving import check_suffix
    from conv2attn.cli import network_files

    destination = Path(output) if output else network_files.beside(Path(model))
    check_suffix(destination)
    check_free(force, destination, report, read=(model, given["images"]))
    certificate, written = network_files.convert_file(
        model, destination, keep_refuted=keep_refuted, force=force, **given
    )
    finish(certificate, form, report, force)
    click.echo(
        f"wrote {destination}" if written else f"{destination} was not written: the result was refuted", err=True
    )
    sys.exit(certificate.exit_code)


@main.command()
@click.option("-o", "--output", type=click.Path(), help="Keep the converted network in this file.")
@reporting
def demo(output: str | None, form: str, report: str | None, force: bool) -> None:
    """Convert and verify the trained ResNet-18 that comes with this project, on the images that come with it."""
    from conv2attn.cli import network_files

    check_free(force, output, report)
    certificate, written = network_files.demonstrate(output, force)
    finish(certificate, form, report, force)
    if written:
        click.echo(f"wrote {output}", err=True)
    sys.exit(certificate.exit_code)
