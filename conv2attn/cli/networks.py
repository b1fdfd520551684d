"""The commands on networks with convolutions: convert, demo, verify, symmetric, recheck."""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, get_args

import click

from conv2attn.choices import EncodingName, StrideBy, only_one
from conv2attn.cli.group import main
from conv2attn.cli.options import (
    Parsed,
    Read,
    Running,
    Showing,
    Written,
    check_free,
    choosing,
    command_line,
    options,
    output_option,
    parse_match,
    parse_sharpness,
    parse_shift,
    reading_images,
    reporting,
    reporting_certificates,
    running_options,
    shows,
    tokens_or_positions,
)
from conv2attn.errors import UsageError
from conv2attn.suffixes import EXPORTS, NETWORK_SUFFIXES


@main.command(example="conv2attn convert resnet18.pt -o part.pt --only 'layer1.*'")
@click.argument("model", type=Read())
@output_option(
    "Where to write the network; by default next to MODEL, with .attn in its name.", NETWORK_SUFFIXES, required=False
)
@click.option(
    "--alpha",
    type=Parsed("a number, or auto", lambda text: text if text == "auto" else parse_sharpness(text), "5"),
    default="auto",
    metavar="A",
    help="Sharpness of the heads; auto makes them one-hot.",
)
@click.option(
    "--encoding",
    type=click.Choice(get_args(EncodingName)),
    default="quadratic",
    help="Positional encoding of the heads.",
)
@click.option(
    "--stride-by",
    type=click.Choice(get_args(StrideBy)),
    default="queries",
    help="How a strided layer skips outputs: by fewer queries, or by a pooling layer after it.",
)
@choosing("Convert")
@click.option(
    "--engine",
    type=click.Choice(["separable", "conv", "gather", "dense"]),
    help=f"Order of evaluation in a {' or '.join(EXPORTS)} file.",
)
@click.option("--keep-refuted", is_flag=True, help="Write the network even if it was refuted, marked as such.")
@reading_images
@running_options
@reporting_certificates
def convert(
    model: str,
    output: str | None,
    keep_refuted: bool,
    showing: Showing,
    running: Running,
    **arguments: Any,
) -> None:
    """Convert every convolution of MODEL to attention, and check it."""
    destination = Path(output) if output else converted_path(Path(model))
    if output is None:
        others = [path for path in (showing.plot, showing.report) if path]
        check_free(showing.force, destination, *others, read=[model, *filter(None, [running.inputs])])
    from conv2attn.cli import network_files

    certificate, written = network_files.convert_file(
        model, destination, keep_refuted=keep_refuted, force=showing.force, running=running, **arguments
    )
    done = f"wrote {destination}" if written else f"{destination} was not written: the result was refuted"
    showing.finish(certificate, done)


@main.command(example="conv2attn demo -o resnet18.attn.pt --report certificate.html")
@output_option("Where to write the converted network; not written by default.", NETWORK_SUFFIXES, required=False)
@reporting_certificates
def demo(output: str | None, showing: Showing) -> None:
    """Convert and verify the ResNet-18 that comes with this project."""
    from conv2attn.cli import network_files

    certificate, written = network_files.demonstrate(output, showing.force)
    done = [f"wrote {output}"] if written else []
    showing.finish(certificate, *done, "\nNext, type:", *(f"  {line}" for line in next_commands()))


def next_commands() -> list[str]:
    """Three commands that run in the same place, with the paths of this program and of the example."""
    from conv2attn.examples import demo_files

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


def converted_path(model: Path) -> Path:
    """The default path of the converted network: next to the file, with .attn before the suffix."""
    suffix = model.suffix if model.suffix in NETWORK_SUFFIXES else ".pt"
    return (
        model.with_suffix(f".attn{suffix}") if not model.is_dir() else model.parent / f"{model.resolve().name}.attn.pt"
    )


files = options(
    click.argument("original", type=Read()),
    click.argument("converted", type=Read()),
)


@main.command(example="conv2attn verify resnet18.pt resnet18.attn.pt --report certificate.json")
@files
@click.option(
    "--save-input",
    type=Written((".npz",)),
    metavar="FILE.npz",
    help="Where to write an input on which the networks differ, if one is found; --inputs reads it.",
)
@click.option(
    "--match",
    type=Parsed("two tensors of the outputs with = between them", parse_match, "logits=0"),
    metavar="A=B",
    multiple=True,
    help="Compare tensor A of the first output, by its name or number, with B of the second; repeatable.",
)
@reading_images
@running_options
@reporting_certificates
@click.pass_context
def verify(context: click.Context, /, showing: Showing, **arguments: Any) -> None:
    """Decide whether CONVERTED computes ORIGINAL, for every input."""
    from conv2attn.cli import network_files

    path = arguments["save_input"]
    certificate = network_files.verify_files(**arguments, command=command_line(context), force=showing.force)
    differ = "repeat" in certificate.circumstances
    done = f"wrote {path}" if differ else f"{path} was not written: no such input was found"
    showing.finish(certificate, *([done] if path else []))


def check_movement(context: click.Context) -> None:
    """Refuses a call with no movement or several (C2A004)."""
    only_one({name: context.params[name] for name in ("shift", "flip", "permute")})


@main.command(example="conv2attn symmetric resnet18.pt --shift 32,0 --input-size 3x224x224", check=check_movement)
@click.argument("model", type=Read())
@click.option(
    "--shift",
    type=Parsed("whole numbers with a comma between them", parse_shift, "1,0"),
    metavar="ROWS,COLUMNS",
    help="Test a circular shift by this many pixels along each axis.",
)
@click.option("--flip", is_flag=True, help="Test the mirror image, with left and right exchanged.")
@click.option("--permute", is_flag=True, help="Test a random order of all pixels, drawn by --seed.")
@reading_images
@running_options
@reporting_certificates
def symmetric(model: str, showing: Showing, **arguments: Any) -> None:
    """Decide whether MODEL commutes with a movement of its pixels.

    The output for a moved input is compared with the moved output, for every input, as verify compares two networks.
    Outputs without pixels, such as logits, must not change.
    """
    from conv2attn.cli import network_files

    showing.finish(network_files.symmetric_file(model, **arguments))


@main.command(example="conv2attn recheck certificate.json")
@click.argument("certificate", type=Read())
@click.argument("original", type=Read(), required=False)
@click.argument("converted", type=Read(), required=False)
@tokens_or_positions
@reporting
def recheck(
    certificate: str, original: str | None, converted: str | None, reading: Any, tokens: Any, showing: Showing
) -> None:
    """Check a stored certificate again, against its files.

    A JSON certificate of verify is decided again, by comparing both networks as formulas, or by running the kept input
    of a refutation. Its files and inputs are those that it names, unless ORIGINAL, CONVERTED or --inputs are passed. A
    certificate of check-span is checked against the model or array ORIGINAL, read with the same options as before.
    """
    from conv2attn.cli.attention_files import is_span_certificate, recheck_spans
    from conv2attn.cli.network_files import recheck_file

    if is_span_certificate(certificate):
        showing.finish(recheck_spans(certificate, original, tokens, reading))
    showing.finish(recheck_file(certificate, (original, converted), tokens.inputs, reading, parsed))


def parsed(command: str) -> tuple[str, dict[str, Any]]:
    """A `verify` command in its usual form, and its options by name, without those that write.

    Raises:
        UsageError: the text is another command (C2A303).
    """
    try:
        program, name, *words = shlex.split(command)
        if (program, name) != ("conv2attn", "verify"):
            raise ValueError(command)
        with verify.make_context("verify", words, help_option_names=[]) as context:
            options = {str(each.name): context.params[str(each.name)] for each in verify.params if not shows(each)}
            return command_line(context), options
    except (ValueError, click.ClickException, click.exceptions.Exit) as error:
        reason = f"the command in the certificate is not a verify command: {command[:80]!r}"
        raise UsageError("C2A303", reason, "Run verify on the two files again.") from error
