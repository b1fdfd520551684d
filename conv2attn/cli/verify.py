"""The commands on two networks: verify, recheck, replay."""

import shlex
import sys
from typing import Any

import click

from conv2attn.cli.group import main
from conv2attn.cli.options import (
    WRITING,
    command_line,
    options,
    placing,
    plotting,
    reading,
    reading_images,
    reporting,
    running,
)
from conv2attn.cli.reports import Showing

files = options(
    click.argument("original", type=click.Path()),
    click.argument("converted", type=click.Path()),
)
tolerance = click.option(
    "--tolerance",
    type=float,
    metavar="E",
    help="Decide whether the outputs differ by at most E, instead of whether they are equal.",
)


@main.command(example="conv2attn verify resnet18.pt resnet18.attn.pt --report certificate.json")
@files
@tolerance
@click.option(
    "--save-witness",
    type=click.Path(),
    metavar="FILE",
    help="Where to write inputs on which the networks differ, if any are found.",
)
@plotting
@reading_images
@running
@reporting
@click.pass_context
def verify(context: click.Context, plot: str | None, showing: Showing, **given: Any) -> None:
    """Decide whether CONVERTED computes ORIGINAL, for every input."""
    from conv2attn.cli import network_files

    kept = given["save_witness"]
    showing.check(kept, plot, read=(given["original"], given["converted"], given["images"]))
    network_files.check_plot(plot)
    given["repeat"] = replay_line(context, str(kept))
    result = network_files.verify_files(**given, force=showing.force, command=command_line(context))
    showing.finish(result)
    network_files.draw(result, plot, showing.force)
    if kept:
        shown = bool(result.witnesses)
        showing.say(f"wrote {kept}" if shown else f"{kept} was not written: no input shows a difference")
    sys.exit(result.exit_code)


@main.command(example="conv2attn recheck certificate.json")
@click.argument("certificate", type=click.Path())
@click.argument("original", type=click.Path(), required=False)
@click.argument("converted", type=click.Path(), required=False)
@reporting
def recheck(certificate: str, original: str | None, converted: str | None, showing: Showing) -> None:
    """Check a stored JSON certificate against its two files again.

    The files are those that CERTIFICATE names, or ORIGINAL and CONVERTED.
    """
    from conv2attn.equivalence import recheck as check

    showing.check(read=(certificate, original, converted))
    result = check(certificate, original, converted)
    showing.finish(result)
    sys.exit(result.exit_code)


@main.command(example="conv2attn replay witness.pt resnet18.pt resnet18.attn.pt")
@click.argument("witness", type=click.Path())
@files
@tolerance
@reading
@placing
@reporting
def replay(witness: str, showing: Showing, **given: Any) -> None:
    """Run two networks again on the inputs that verify kept in WITNESS."""
    from conv2attn.cli.network_files import replay_file

    showing.check(read=(witness, given["original"], given["converted"]))
    result = replay_file(witness, **given)
    showing.finish(result)
    sys.exit(result.exit_code)


def replay_line(context: click.Context, kept: str) -> str:
    """The command that shows again how the networks differ on the inputs in the file `kept`."""
    files = [str(context.params[name]) for name in ("original", "converted")]
    words = ["conv2attn", "replay", kept, *files]
    for parameter in main.commands["replay"].params:
        value = context.params.get(str(parameter.name))
        if isinstance(parameter, click.Option) and parameter.name not in WRITING:
            default = value in (None, (), parameter.get_default(context))
            values: tuple[Any, ...] = () if default else value if isinstance(value, tuple) else (value,)
            words += [
                word for each in values for word in (parameter.opts[0], *([] if parameter.is_flag else [str(each)]))
            ]
    return shlex.join(words)
