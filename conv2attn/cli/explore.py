"""The command that writes a page on which the attention of a network is explored: explore."""

from typing import Any

import click

from conv2attn.cli.group import main
from conv2attn.cli.options import choosing, reading_images
from conv2attn.cli.paths import Read, Written
from conv2attn.suffixes import PAGE


@main.command(example="conv2attn explore resnet18.pt -o page.html")
@click.argument("model", type=Read())
@click.option(
    "-o",
    "--output",
    type=Written(PAGE),
    metavar="FILE",
    required=True,
    help="Where to write the page (.html) or the picture (.svg).",
)
@click.option("--inputs", type=Read(), help="The image to show: a PNG, JPEG, folder, .npy, .npz or .pt file.")
@choosing("Show")
@click.option("--input-size", metavar="CxHxW", help="Size of the image; the network's own by default.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@reading_images
def explore(
    model: str,
    output: str,
    inputs: str | None,
    only: Any,
    input_size: str | None,
    force: bool,
    reading: Any,
) -> None:
    """Write one offline page that shows where each head looks.

    Attention is shown as it runs, of whatever library. Where nothing attends, convolutions are shown as the attention
    that they convert to.
    Without --inputs, the page shows the first example image of this project. Of several images, it shows the first.

    With -o FILE.svg, the command writes a moving picture instead: the heads of the first layer that --only names, as
    they sharpen.
    """
    from conv2attn.cli.explored import explore_file

    for told in explore_file(model, output, inputs, only, reading, force, input_size):
        click.echo(told, err=True)
