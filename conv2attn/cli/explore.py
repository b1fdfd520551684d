"""The command that writes a page on which the attention of a network is explored: explore."""

import click

from conv2attn.cli.group import main
from conv2attn.cli.options import reading_images
from conv2attn.cli.reports import check_free


@main.command(example="conv2attn explore resnet18.pt -o page.html")
@click.argument("model", type=click.Path())
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="FILE",
    required=True,
    help="Where to write the page (.html) or the picture (.svg).",
)
@click.option("--image", type=click.Path(), help="The image to show: a PNG, JPEG, folder, .npy, .npz or .pt file.")
@click.option("--only", multiple=True, metavar="GLOB", help="Show only layers whose name matches; repeatable.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@reading_images
def explore(model: str, output: str, image: str | None, only: tuple[str, ...], force: bool, reading: object) -> None:
    """Write one offline page that shows where each head looks.

    Convolutions are shown as the attention that they convert to. Attention of other libraries is shown as it runs.
    Without --image, the page shows the first example image of this project. Of several images, it shows the first.

    With -o FILE.svg, the command writes a moving picture instead: the heads of the first layer that --only names, as
    they sharpen.
    """
    from conv2attn.cli.explored import explore_file

    check_free(force, output, read=(model, image))
    for told in explore_file(model, output, image, only, reading, force):  # type: ignore[arg-type]
        click.echo(told, err=True)
