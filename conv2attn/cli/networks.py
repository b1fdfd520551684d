"""The commands that convert: convert, demo."""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from conv2attn.cli.group import main
from conv2attn.cli.options import choosing, plotting, reading_images, reporting, running
from conv2attn.cli.paths import Read, Written, check_free
from conv2attn.cli.reports import Showing
from conv2attn.suffixes import NETWORK


@main.command(example="conv2attn convert resnet18.pt -o part.pt --only 'layer1.*'")
@click.argument("model", type=Read())
@click.option(
    "-o",
    "--output",
    type=Written(NETWORK),
    metavar="FILE",
    help="Where to write the network; by default beside MODEL, with .attn in its name.",
)
@click.option(
    "--alpha", default="auto", show_default=True, metavar="A", help="Sharpness of the heads; auto makes them one-hot."
)
@click.option(
    "--encoding",
    type=click.Choice(["quadratic", "enumerated"]),
    default="quadratic",
    show_default=True,
    help="Positional encoding of the heads.",
)
@click.option(
    "--stride-by",
    type=click.Choice(["queries", "pooling"]),
    default="queries",
    show_default=True,
    help="How a strided layer skips outputs: fewer queries, or a pooling layer behind.",
)
@choosing("Convert")
@click.option(
    "--engine",
    type=click.Choice(["separable", "conv", "gather", "dense"]),
    help="Order of evaluation in a .pt2 or .onnx file.",
)
@click.option("--keep-refuted", is_flag=True, help="Write the network even if it was refuted, marked as such.")
@plotting
@reading_images
@running
@reporting
def convert(
    model: str, output: str | None, keep_refuted: bool, plot: str | None, showing: Showing, **given: Any
) -> None:
    """Convert every convolution of MODEL to attention, and check it."""
    destination = Path(output) if output else beside(Path(model))
    if output is None:
        others = [path for path in (plot, showing.report) if path]
        check_free(showing.force, destination, *others, read=[model, *filter(None, [given["inputs"]])])
    from conv2attn.cli import network_files

    certificate, written = network_files.convert_file(
        model, destination, keep_refuted=keep_refuted, force=showing.force, **given
    )
    showing.finish(certificate)
    network_files.draw(certificate, plot, showing.force)
    showing.say(f"wrote {destination}" if written else f"{destination} was not written: the result was refuted")
    sys.exit(certificate.exit_code)


@main.command(example="conv2attn demo -o resnet18.attn.pt --report certificate.html")
@click.option(
    "-o",
    "--output",
    type=Written(NETWORK),
    metavar="FILE",
    help="Where to write the converted network; not written by default.",
)
@plotting
@reporting
def demo(output: str | None, plot: str | None, showing: Showing) -> None:
    """Convert and verify the ResNet-18 that comes with this project."""
    from conv2attn.cli import network_files

    certificate, written = network_files.demonstrate(output, showing.force)
    showing.finish(certificate)
    network_files.draw(certificate, plot, showing.force)
    if written:
        showing.say(f"wrote {output}")
    showing.say("\nNext, type:\n" + "\n".join(f"  {line}" for line in next_commands()))
    sys.exit(certificate.exit_code)


def next_commands() -> list[str]:
    """Three commands that run where this one ran, with the paths of this program and of the example."""
    from conv2attn.checkpoints.examples import demo_files

    program = sys.argv[0] if Path(sys.argv[0]).name == "conv2attn" else "conv2attn"
    if shutil.which("conv2attn") == shutil.which(program):
        program = "conv2attn"
    model, program = (
        shlex.quote(os.path.relpath(path) if os.sep in path else path) for path in (str(demo_files().model), program)
    )
    return [
        f"{program} convert {model} -o resnet18.attn.pt",
        f"{program} verify {model} resnet18.attn.pt",
        f"{program} explore {model} -o page.html",
    ]


def beside(model: Path) -> Path:
    """Where the converted network goes by default: beside the file, .attn before a suffix under which we write."""
    suffix = model.suffix if model.suffix in NETWORK else ".pt"
    return (
        model.with_suffix(f".attn{suffix}") if not model.is_dir() else model.parent / f"{model.resolve().name}.attn.pt"
    )
