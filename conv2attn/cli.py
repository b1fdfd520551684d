"""The command line: parse, call, render, exit code."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from conv2attn.errors import RULES, CheckpointError, Conv2AttnError, UsageError

WRITING = ("form", "output", "report", "force", "save_witness")
RUNNING = ("input_size", "input_range", "images", "seed")
FORMATS = click.Choice(["text", "json", "markdown"])


class Group(click.Group):
    """Turns the project's errors into one sentence on stderr and their exit code; a bug of ours is 70."""

    def invoke(self, context: click.Context) -> Any:
        """Runs the command."""
        try:
            return super().invoke(context)
        except Conv2AttnError as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(error.exit_code)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if context.params.get("debug"):
                raise
            click.echo(f"internal error: {type(error).__name__}: {error}; --debug shows where", err=True)
            sys.exit(70)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="conv2attn")
@click.option("--debug", is_flag=True, help="Show the traceback of an internal error.")
def main(debug: bool) -> None:
    """Turn convolutions into equal multi-head self-attention layers, and verify that they are equal.

    Exit codes: 0 holds; 1 refuted; 2 wrong usage or unreadable input; 3 undecided, unsupported or nothing checked;
    70 an internal error.
    """


def options(*decorators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several click options as one decorator, in reading order."""

    def decorate(command: Any) -> Any:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


reporting = options(
    click.option("--format", "form", type=FORMATS, default="text", show_default=True, help="Form of the report."),
    click.option("--output-report", "--report", "report", type=click.Path(), help="Also write the report as JSON."),
    click.option("--force", is_flag=True, help="Overwrite existing files."),
)
running = options(
    click.option("--input-size", metavar="CxHxW", help="Size of the random images; the architecture's own by default."),
    click.option("--input-range", type=float, default=1.0, show_default=True, help="Random images lie within +- this."),
    click.option("--images", type=click.Path(), help="A .pt or .npy file of images (N, C, H, W) to run both on."),
    click.option(
        "--seed", type=click.IntRange(0, 2**64 - 1), default=0, show_default=True, help="Seed of the random images."
    ),
    click.option(
        "--dtype", type=click.Choice(["float64", "float32", "bfloat16", "float16"]), help="Cast to this first."
    ),
    click.option("--device", default="cpu", show_default=True, help="Where to run."),
)


@main.command()
@click.argument("model", type=click.Path())
@click.option("-o", "--output", type=click.Path(), help="File to write; MODEL with .attn before its suffix by default.")
@click.option("--alpha", default="auto", show_default=True, help="Sharpness of the heads, or auto.")
@click.option("--encoding", default="quadratic", show_default=True, help="quadratic or enumerated.")
@click.option("--stride-by", default="queries", show_default=True, help="queries or pooling.")
@click.option("--arch", metavar="NAME", help="What the network must be, such as resnet18.")
@click.option("--only", multiple=True, metavar="GLOB", help="Convert only layers whose name fits; repeatable.")
@click.option("--skip", multiple=True, metavar="GLOB", help="Leave layers whose name fits; repeatable.")
@click.option("--keep-refuted", is_flag=True, help="Write the network, marked, even if it was refuted.")
@running
@reporting
def convert(
    model: str, output: str | None, keep_refuted: bool, form: str, report: str | None, force: bool, **given: Any
) -> None:
    """Convert every convolution of MODEL to multi-head self-attention, check the result, and write it."""
    from conv2attn import commands

    destination = Path(output) if output else Path(model).with_suffix(f".attn{Path(model).suffix}")
    check_free(force, destination, report)
    certificate, written = commands.convert_file(model, destination, keep_refuted=keep_refuted, force=force, **given)
    finish(certificate, form, report, force)
    click.echo(
        f"wrote {destination}" if written else f"{destination} was not written: the result was refuted", err=True
    )
    sys.exit(certificate.exit_code)


@main.command()
@click.argument("original", type=click.Path(), required=False)
@click.argument("converted", type=click.Path(), required=False)
@click.option("--output", type=click.Path(), help="Write the report to a file instead of stdout.")
@click.option("--tolerance", type=float, metavar="E", help="Ask instead whether the outputs differ by at most E.")
@click.option("--save-witness", type=click.Path(), help="Keep the inputs that show what is refuted in this file.")
@click.option("--witness", type=click.Path(), help="Show again what the inputs kept in this file showed.")
@click.option("--certificate", type=click.Path(), help="Check a stored JSON report against its files again.")
@running
@reporting
@click.pass_context
def verify(
    context: click.Context, output: str | None, form: str, report: str | None, force: bool, **given: Any
) -> None:
    """Decide whether the network in CONVERTED computes the one in ORIGINAL, for every input."""
    from conv2attn import commands

    check_free(force, output, report, given["save_witness"])
    repeat = f"{command_line(context, RUNNING)} --witness {shlex.quote(str(given['save_witness']))}"
    result = commands.verify_files(**given, force=force, command=command_line(context), repeat=repeat)
    finish(result, form, report, force, output)
    sys.exit(result.exit_code)


@main.command()
@click.option("-o", "--output", type=click.Path(), help="Keep the converted network in this file.")
@reporting
def demo(output: str | None, form: str, report: str | None, force: bool) -> None:
    """Convert and verify the trained ResNet-18 that comes with this project, on the images that come with it."""
    from conv2attn import commands

    check_free(force, output, report)
    certificate, written = commands.demonstrate(output, force)
    finish(certificate, form, report, force)
    if written:
        click.echo(f"wrote {output}", err=True)
    sys.exit(certificate.exit_code)


@main.command("check-span")
@click.argument("model", type=click.Path())
@click.option("--kernel-size", default="3", show_default=True, metavar="K", help="Of the convolution: 3, or 1x7.")
@click.option("--dilation", type=int, default=1, show_default=True, help="Of the convolution.")
@click.option("--offsets", metavar="'0,-1 0,0'", help="Explicit offsets (key - query) instead of a kernel.")
@click.option("--grid", metavar="HxW", help="Sides of the grid of tokens, where they are not known.")
@click.option("--inputs", type=click.Path(), help="A .pt or .npy file of images, for attention that reads content.")
@click.option("--arch", metavar="KIND:NAME", help="transformers:FOLDER, timm:NAME, or package.module:factory.")
@click.option("--position-only", is_flag=True, help="Read attention by position alone from the parameters; no inputs.")
@click.option(
    "--condition",
    type=click.Choice(["per-query", "joint", "interior"]),
    default="interior",
    show_default=True,
    help="The condition that decides.",
)
@click.option("--eps", type=float, help="Residual that counts as none; the dtype's roundoff times the size by default.")
@click.option("--max-phi", type=float, help="Largest norm of the mixing matrix; 1e6 in float64, 1e3 in float32.")
@click.option(
    "--extra-tokens", type=click.IntRange(0), default=0, help="Leading tokens that are no pixels: a class token, say."
)
@click.option(
    "--memory-limit",
    type=click.IntRange(1),
    default=512,
    show_default=True,
    metavar="MIB",
    help="MiB of temporary arrays.",
    callback=lambda context, parameter, value: value * 2**20,
)
@click.option(
    "--exact", is_flag=True, help="The arrays are exact: floats as the rationals they are, integers as weights."
)
@click.option("--output", type=click.Path(), help="Write the report to a file instead of stdout.")
@click.option("--plot", type=click.Path(), metavar="FILE", help="Draw each head into this .png, .svg or .pdf file.")
@reporting
def check_span(
    model: str, output: str | None, form: str, report: str | None, force: bool, plot: str | None, **given: Any
) -> None:
    """Decide whether the attention in MODEL can express every convolution of a kernel (Lemma 3)."""
    from conv2attn.span.conditions.sharing import processes_of_torchrun
    from conv2attn.span_commands import check_file

    def checked(speaks: bool) -> int:
        if speaks:
            check_free(force, output, report, plot)
        result = check_file(model, plot=plot if speaks else None, force=force, **given)
        if speaks:
            finish(result, form, report, force, output)
        return result.exit_code

    with processes_of_torchrun() as crew:
        code = crew.together(lambda: checked(crew.rank == 0))
    sys.exit(code)


@main.command()
@click.argument("claims", nargs=-1, metavar="[CLAIM]...")
@click.option(
    "--formal", is_flag=True, help="Check the formal layer too, which takes coqc; exit 3 where it is missing."
)
@click.option(
    "--format",
    "form",
    type=click.Choice([*FORMATS.choices, "latex"]),
    default="text",
    show_default=True,
    help="Form of the report; latex and markdown give the proofs with their steps.",
)
@click.option("--output", type=click.Path(), help="Write the report to a file instead of stdout.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def prove(claims: tuple[str, ...], formal: bool, form: str, output: str | None, force: bool) -> None:
    """Decide the claims of proofs/ again, each beside a mutant that must be refuted; all without CLAIM."""
    from conv2attn.prove import prove as decide

    result = decide(claims, formal=formal)
    emit(getattr(result, f"to_{form}")(), output, force)
    sys.exit(result.exit_code)


@main.command()
@click.argument("code", required=False)
def explain(code: str | None) -> None:
    """Explain what the rule CODE asks, why, and what to do; without CODE, list all."""
    if code is None:
        click.echo("\n".join(f"{key}  {rule.title}" for key, rule in RULES.items()))
        return
    if code.upper() not in RULES:
        raise UsageError("C2A001", f"{code} is not a code", "Call explain without a code for the list.")
    rule = RULES[code.upper()]
    click.echo(f"{code.upper()}: {rule.title}\n\n{rule.why}\n\nWhat to do: {rule.remedy}")


def command_line(context: click.Context, without: tuple[str, ...] = ()) -> str:
    """What to type for the same result: arguments, and the options that are not as by default, some left out."""
    words = ["conv2attn", str(context.info_name)]
    for parameter in context.command.params:
        value = context.params.get(str(parameter.name))
        if isinstance(parameter, click.Argument):
            words += [] if value is None else [str(value)]
        elif parameter.name in (*WRITING, *without):
            continue
        elif value not in (None, False, (), parameter.get_default(context)):
            words += [parameter.opts[0], str(value)]
    return shlex.join(words)


def check_free(force: bool, *paths: str | Path | None) -> None:
    """Refuses, before any work is done, what could not be written after it.

    Raises:
        CheckpointError: a file is there and not to be overwritten (C2A305), or its folder is not (C2A301).
        UsageError: one file is to hold two things (C2A001).
    """
    wanted = [Path(path) for path in paths if path is not None]
    for place, path in enumerate(wanted):
        if path.resolve() in [other.resolve() for other in wanted[:place]]:
            raise UsageError("C2A001", f"{path} is to hold both the report and something else", "Name two files.")
        if path.exists() and not force:
            raise CheckpointError("C2A305", f"{path} exists")
        if not path.parent.is_dir():
            raise CheckpointError("C2A301", f"{path.parent} is not a folder")


def finish(certificate: Any, form: str, report: str | None, force: bool, output: str | None = None) -> None:
    """Shows the report in the form asked for, and writes the JSON beside it if asked."""
    emit(getattr(certificate, f"to_{form}")(), output, force)
    if report:
        emit(certificate.to_json(), report, force)


def emit(text: str, output: str | None, force: bool) -> None:
    """Prints `text`, or writes it to a file."""
    if output is None:
        click.echo(text.rstrip("\n"))
        return
    from conv2attn.checkpoints.writing import write_text_atomically

    write_text_atomically(output, text, force)
