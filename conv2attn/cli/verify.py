"""The commands on two networks: verify, recheck, replay."""

import shlex
import sys
from typing import Any

import click

from conv2attn.cli.group import main
from conv2attn.cli.options import WRITING, command_line, options, placing, reading, reading_images, reporting, running
from conv2attn.cli.reports import check_free, finish

files = options(
    click.argument("original", type=click.Path()),
    click.argument("converted", type=click.Path()),
)
tolerance = click.option(
    "--tolerance", type=float, metavar="E", help="Ask instead whether the outputs differ by at most E."
)


@main.command()
@files
@click.option("--output", type=click.Path(), help="Write the report to a file instead of stdout.")
@tolerance
@click.option("--save-witness", type=click.Path(), help="Keep the inputs that show what is refuted in this file.")
@click.option("-v", "--verbose", is_flag=True, help="Show every assumption, and bounds that say nothing.")
@reading_images
@running
@reporting
@click.pass_context
def verify(
    context: click.Context, output: str | None, form: str, report: str | None, force: bool, **given: Any
) -> None:
    """Decide whether the network in CONVERTED computes the one in ORIGINAL, for every input."""
    from conv2attn.cli.network_files import verify_files

    verbose, kept = given.pop("verbose"), given["save_witness"]
    check_free(force, output, report, kept, read=(given["original"], given["converted"], given["images"]))
    given["repeat"] = replay_line(context, str(kept))
    result = verify_files(**given, force=force, command=command_line(context))
    finish(result, form, report, force, output, verbose=verbose)
    if kept:
        shown = bool(result.witnesses)
        click.echo(f"wrote {kept}" if shown else f"{kept} was not written: no input shows a difference", err=True)
    sys.exit(result.exit_code)


@main.command()
@click.argument("certificate", type=click.Path())
@click.argument("original", type=click.Path(), required=False)
@click.argument("converted", type=click.Path(), required=False)
@click.option("--output", type=click.Path(), help="Write the report to a file instead of stdout.")
@reporting
def recheck(
    certificate: str,
    original: str | None,
    converted: str | None,
    output: str | None,
    form: str,
    report: str | None,
    force: bool,
) -> None:
    """Check the stored JSON report CERTIFICATE against its two files again, or against ORIGINAL and CONVERTED."""
    from conv2attn.equivalence import recheck as check

    check_free(force, output, report, read=(certificate, original, converted))
    result = check(certificate, original, converted)
    finish(result, form, report, force, output)
    sys.exit(result.exit_code)


@main.command()
@click.argument("witness", type=click.Path())
@files
@click.option("--output", type=click.Path(), help="Write the report to a file instead of stdout.")
@tolerance
@reading
@placing
@reporting
def replay(witness: str, output: str | None, form: str, report: str | None, force: bool, **given: Any) -> None:
    """Show again what the inputs that verify kept in WITNESS show of the networks in ORIGINAL and CONVERTED."""
    from conv2attn.cli.network_files import replay_file

    check_free(force, output, report, read=(witness, given["original"], given["converted"]))
    result = replay_file(witness, **given)
    finish(result, form, report, force, output)
    sys.exit(result.exit_code)


def replay_line(context: click.Context, kept: str) -> str:
    """What to type to see again what the inputs in the file `kept` show."""
    files = [str(context.params[name]) for name in ("original", "converted")]
    words = ["conv2attn", "replay", kept, *files]
    for parameter in main.commands["replay"].params:
        value = context.params.get(str(parameter.name))
        if isinstance(parameter, click.Option) and parameter.name not in (*WRITING, "verbose"):
            words += [] if value in (None, parameter.get_default(context)) else [parameter.opts[0], str(value)]
    return shlex.join(words)
