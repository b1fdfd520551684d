"""The commands that convert: convert, demo."""

import sys
from pathlib import Path
from typing import Any

import click

from conv2attn.cli.group import main
from conv2attn.cli.options import reading_images, reporting, running
from conv2attn.cli.reports import Showing


@main.command(example="conv2attn convert resnet18.pt -o part.pt --only 'layer1.*'")
@click.argument("model", type=click.Path())
@click.option(
    "-o", "--output", type=click.Path(), metavar="FILE", help="The network; MODEL with .attn in its name by default."
)
@click.option("--alpha", default="auto", show_default=True, help="Sharpness of the heads, or auto.")
@click.option(
    "--encoding",
    type=click.Choice(["quadratic", "enumerated"]),
    default="quadratic",
    show_default=True,
    help="Heads.",
)
@click.option(
    "--stride-by", type=click.Choice(["queries", "pooling"]), default="queries", show_default=True, help="What strides."
)
@click.option("--only", multiple=True, metavar="GLOB", help="Convert only layers whose name fits; repeatable.")
@click.option("--skip", multiple=True, metavar="GLOB", help="Leave layers whose name fits; repeatable.")
@click.option(
    "--engine",
    type=click.Choice(["separable", "conv", "gather", "dense"]),
    help="Order of evaluation in a .pt2 or .onnx file.",
)
@click.option("--keep-refuted", is_flag=True, help="Write the network, marked, even if it was refuted.")
@reading_images
@running
@reporting
def convert(model: str, output: str | None, keep_refuted: bool, showing: Showing, **given: Any) -> None:
    """Convert every convolution of MODEL to attention, and check it."""
    from conv2attn.checkpoints.saving import check_suffix
    from conv2attn.cli import network_files

    destination = Path(output) if output else network_files.beside(Path(model))
    check_suffix(destination)
    showing.check(destination, read=(model, given["images"]))
    certificate, written = network_files.convert_file(
        model, destination, keep_refuted=keep_refuted, force=showing.force, **given
    )
    showing.finish(certificate)
    showing.say(f"wrote {destination}" if written else f"{destination} was not written: the result was refuted")
    sys.exit(certificate.exit_code)


@main.command(example="conv2attn demo -o resnet18.attn.pt --report certificate.html")
@click.option("-o", "--output", type=click.Path(), metavar="FILE", help="Keep the converted network.")
@reporting
def demo(output: str | None, showing: Showing) -> None:
    """Convert and verify the ResNet-18 that comes with this project."""
    from conv2attn.cli import network_files

    showing.check(output)
    certificate, written = network_files.demonstrate(output, showing.force)
    showing.finish(certificate)
    if written:
        showing.say(f"wrote {output}")
    sys.exit(certificate.exit_code)
