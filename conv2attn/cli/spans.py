"""The commands on attention of any network: check-span, heads, recover, distil, explore."""

import shutil
from typing import Any

import click
from click.core import ParameterSource

from conv2attn.choices import check_distilling
from conv2attn.cli.group import main
from conv2attn.cli.options import (
    INPUT_SIZE,
    INPUTS,
    RUNS,
    Parsed,
    Read,
    Showing,
    Written,
    choosing,
    force,
    options,
    output_option,
    parse_sizes,
    reading_images,
    reporting,
    tokens,
    tokens_or_positions,
)
from conv2attn.cli.replace_options import ReplaceOptions, parse_heads, replacing
from conv2attn.errors import UsageError
from conv2attn.suffixes import CERTIFICATE_SUFFIXES, NETWORK_SUFFIXES, PAGE_SUFFIXES, PICTURE_SUFFIXES, TENSOR_SUFFIXES


def parse_kernel(text: str) -> int | tuple[int, ...]:
    """`3`, or `1x7` for each axis."""
    numbers = parse_sizes(text)
    return numbers if len(numbers) > 1 else numbers[0]


def parse_offsets(text: str) -> list[tuple[int, ...]]:
    """`0,-1 0,0 0,1` as offsets; a ValueError if there are none, or one is not integers."""
    if not text.strip():
        raise ValueError(text)
    return [tuple(int(number) for number in offset.split(",")) for offset in text.split()]


def check_taps(context: click.Context) -> None:
    """Refuses a kernel together with offsets, which already are the taps (C2A004)."""
    for name, option in (("kernel_size", "--kernel-size"), ("dilation", "--dilation")):
        if context.params["offsets"] and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError("C2A004", f"{option} has no effect with --offsets", "Leave out one of them.")


@main.command("check-span", example="conv2attn check-span part.pt --grid 14x14", check=check_taps)
@click.argument("model", type=Read())
@click.option(
    "--kernel-size",
    type=Parsed("positive whole numbers with an x between them", parse_kernel, "3 or 3x5"),
    default="3",
    metavar="K",
    help="Kernel size of the convolution: 3, or 1x7.",
)
@click.option("--dilation", type=int, default=1, help="Dilation of the convolution.")
@click.option(
    "--offsets",
    type=Parsed("offsets", parse_offsets, "'0,-1 0,0 0,1'"),
    metavar="'0,-1 0,0'",
    help="Offsets (key - query) to form, instead of those of a kernel.",
)
@choosing("Check")
@click.option(
    "--condition",
    type=click.Choice(["per-query", "per-image", "joint", "interior"]),
    default=("interior",),
    multiple=True,
    help="Which queries share a mixing: none, those of an image, all, or all whose taps are on the grid. "
    "Repeatable: the first decides.",
)
@click.option(
    "--eps",
    type=float,
    help="Largest residual that counts as zero; by default the rounding error of the attention.",
)
@click.option(
    "--max-phi", type=float, help="Largest norm of the mixing matrix; by default 1e6 in float64, 1e3 in float32."
)
@click.option(
    "--tight",
    is_flag=True,
    help="Solve a linear programme for targets that least squares leaves undecided; also done for --eps and --max-phi.",
)
@click.option(
    "--memory-limit",
    type=click.IntRange(1),
    default=512,
    metavar="MIB",
    help="Memory for temporary arrays.",
    callback=lambda context, parameter, value: value * 2**20,
)
@click.option(
    "--certificate",
    type=Written(CERTIFICATE_SUFFIXES),
    metavar="FILE",
    help="Write a certificate in integers, which a short program can check.",
)
@tokens_or_positions
@reporting
def check_span(model: str, showing: Showing, certificate: str | None, **arguments: Any) -> None:
    """Decide whether attention can express the convolutions of a kernel.

    This is the condition of Lemma 3, for each attention layer in MODEL.
    """
    from conv2attn.cli.attention_files import check_file

    showing.finish(check_file(model, certificate=certificate, force=showing.force, **arguments))


@main.command("heads", example="conv2attn heads part.pt --grid 14x14 -v")
@click.argument("model", type=Read(), required=False)
@choosing("Read")
@click.option(
    "--plot",
    type=Written(PICTURE_SUFFIXES),
    metavar="FILE",
    help="Draw the mean attention at each displacement: .png, .svg or .pdf.",
)
@click.option(
    "--curves",
    type=Written(PICTURE_SUFFIXES),
    metavar="FILE",
    help="Draw the explained shares, layer by layer.",
)
@click.option("--columns", "defined", is_flag=True, help="Define every column, with its source; reads no file.")
@replacing
@tokens
@reporting
def heads(
    model: str | None,
    plot: str | None,
    replacing: ReplaceOptions,
    defined: bool,
    showing: Showing,
    **arguments: Any,
) -> None:
    """Measure what each head of MODEL does.

    The report says where each head looks, and which share of its attention positions, content and convolutions explain,
    with standard errors over the images. Without --inputs, positions alone are read. With -v, the report has a line for
    each head and all nearest convolutions; as csv, a line for each head.
    """
    if defined:
        if showing.report or showing.form != "text":
            raise click.UsageError("--columns is text on stdout: leave out --report and --format.")
        from conv2attn.report.text import to_text
        from conv2attn.span.graded_facts.facts_document import definitions

        click.echo(to_text(definitions(), shutil.get_terminal_size().columns), nl=False)
        return
    if model is None:
        raise click.UsageError("Missing argument 'MODEL'")
    from conv2attn.cli.attention_files import facts_in

    showing.finish(facts_in(model, plot=plot, replacing=replacing, force=showing.force, **arguments))


@main.command("recover", example="conv2attn recover part.pt -o convolutions.pt --grid 14x14")
@click.argument("model", type=Read())
@output_option("Where to write the convolutions.", TENSOR_SUFFIXES)
@click.option(
    "--kernel-size",
    type=click.Choice(["1", "3", "5", "7"]),
    default="3",
    help="Kernel size of the convolutions.",
)
@choosing("Read")
@tokens
@reporting
def recover(model: str, output: str, kernel_size: str, showing: Showing, **arguments: Any) -> None:
    """Write the convolution nearest to each attention layer of MODEL.

    A layer that is a convolution is recovered bit for bit.
    """
    from conv2attn.cli.attention_files import write_recovered

    report = write_recovered(model, output, kernel_size=int(kernel_size), force=showing.force, **arguments)
    showing.finish(report, f"wrote {output}")


def check_distil(context: click.Context) -> None:
    """Refuses an invalid loss or kernel (C2A001), and a call without images (C2A004)."""
    check_distilling(context.params["max_loss"], context.params["kernel_size"])
    if not context.params["inputs"]:
        raise UsageError("C2A004", "distil runs the network on images, which are missing", "Pass --inputs.")


@main.command(
    "distil",
    example="conv2attn distil vit.pt -o out.pt --inputs images.pt --max-loss 0.01",
    check=check_distil,
)
@click.argument("model", type=Read())
@output_option("Where to write the network.", NETWORK_SUFFIXES)
@options(
    click.option(
        "--max-loss",
        type=Parsed("a positive number", float, "0.01"),
        metavar="E",
        required=True,
        help="Largest cost of all replaced heads together: the change of the output, or with --labels of the loss.",
    ),
    click.option(
        "--heads",
        type=Parsed("a layer and its heads", parse_heads, "blocks.0.attn:0,3"),
        default=("auto",),
        metavar="LAYER:HEADS",
        multiple=True,
        help="Heads that may be replaced; repeatable; auto, all of them, by default.",
    ),
    click.option(
        "--kernel-size", type=int, default=7, metavar="K", help="Tokens a side that a convolution reads: odd."
    ),
    click.option("--labels", type=Read(), metavar="FILE", help="Table file,label of the inputs: measure the loss."),
    heading="Replace heads",
)
@choosing("Distil")
@options(INPUTS, INPUT_SIZE, heading=RUNS)
@reading_images
@reporting
def distil(model: str, output: str, showing: Showing, **arguments: Any) -> None:
    """Write MODEL with heads replaced by convolutions if that costs little.

    A third of the images measures the mean attention by displacement of each head, a third chooses heads, and the last
    third measures the loss. Nothing is written if no head is replaced.
    """
    from conv2attn.cli.distil_file import distil_file

    report = distil_file(model, output, force=showing.force, **arguments)
    written = any(layer.convolved for layer in report.layers)
    showing.finish(report, f"wrote {output}" if written else f"{output} was not written: no head was replaced")


@main.command(example="conv2attn explore resnet18.pt -o page.html")
@click.argument("model", type=Read())
@output_option("Where to write the page (.html) or a picture (.png).", PAGE_SUFFIXES)
@choosing("Show")
@options(INPUTS, INPUT_SIZE, heading=RUNS)
@reading_images
@force
def explore(model: str, output: str, **arguments: Any) -> None:
    """Write one offline page that shows where each head looks.

    The page shows the attention of a run, for a model of any library. If nothing attends, it shows the attention to
    which the convolutions convert. Without --inputs, the page shows the first example image of this project. With
    several images, each one and their mean can be selected on the page.

    With -o FILE.png, it writes the photo with the attention of the layers named by --only from the token in its middle,
    for the first image.
    """
    from conv2attn.cli.attention_files import explore_file

    for line in explore_file(model, output, **arguments):
        click.echo(line, err=True)
