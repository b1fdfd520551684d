"""Options that several commands take, each kind of them with the value that a command is given."""

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import click

from conv2attn.cli.paths import Read, Written
from conv2attn.suffixes import PICTURE, REPORT

if TYPE_CHECKING:
    from conv2attn.report import Report

WIDTH = 80


@final
@dataclass(frozen=True)
class Showing:
    """How a report is shown and where it is written, as the options say."""

    form: str
    report: str | None
    force: bool
    verbose: bool
    quiet: bool
    wide: bool

    def finish(self, result: "Report") -> None:
        """Shows the report, and writes it to a file if asked."""
        if self.quiet:
            click.echo("\n".join(result.document().answer))
        elif self.form == "text":
            click.echo(result.to_text(None if self.wide else columns(), self.verbose, in_colour()), nl=False)
        else:
            click.echo(self.written(result, self.form), nl=False)
        if self.report is not None:
            from conv2attn.checkpoints.atomic_files import write_text_atomically

            form = REPORT[Path(self.report).suffix]
            write_text_atomically(self.report, self.written(result, form), self.force)

    def written(self, result: "Report", form: str) -> str:
        """The report in a form, with a newline at its end."""
        write = getattr(result, f"to_{form}")
        text: str = write() if form in ("json", "csv") else write(verbose=self.verbose)
        return text.rstrip("\n") + "\n"

    def say(self, line: str) -> None:
        """Says on stderr what was done, unless only the verdict is asked for."""
        if not self.quiet:
            click.echo(line, err=True)


def columns() -> int:
    """The width of the terminal, or what COLUMNS says; 80 where stdout is none."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return shutil.get_terminal_size((WIDTH, 24)).columns
    return WIDTH


def in_colour() -> bool:
    """Whether stdout is a terminal that takes colour; NO_COLOR forbids it."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


FORMATS = click.Choice(["text", "json", "markdown", "html", "svg", "latex", "csv"])


def options(*decorators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several click options as one decorator, in reading order."""

    def decorate(command: Any) -> Any:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


SHOWING = ("form", "report", "force", "verbose", "quiet", "wide")
WRITING = (*SHOWING, "output", "plot", "save_witness")


def reporting(command: Any) -> Any:
    """The options on the report, given to the command as one `showing`."""

    @wraps(command)
    def gathered(*args: Any, **given: Any) -> Any:
        showing = Showing(**{name: given.pop(name) for name in SHOWING})
        return command(*args, showing=showing, **given)

    return options(
        click.option("-v", "--verbose", is_flag=True, help="Show all assumptions and details."),
        click.option("-q", "--quiet", is_flag=True, help="Show only the verdict."),
        click.option("--wide", is_flag=True, help="Show all columns, even if they do not fit the terminal."),
        click.option(
            "--format", "form", type=FORMATS, default="text", show_default=True, help="Format of the report on stdout."
        ),
        click.option(
            "--report",
            type=Written(REPORT),
            metavar="FILE",
            help="Also write the report to a .json, .md, .html, .svg, .tex, .csv or .txt file.",
        ),
        click.option("--force", is_flag=True, help="Overwrite existing files."),
    )(gathered)


def choosing(does: str) -> Callable[[Any], Any]:
    """The options that choose layers, given to a command as one `only`; `does` is what it does to them."""

    def decorate(command: Any) -> Any:
        @wraps(command)
        def called(*args: Any, only: tuple[str, ...], skip: tuple[str, ...], **given: Any) -> Any:
            from conv2attn.arguments import Selection

            return command(*args, only=Selection(only, skip), **given)

        return options(
            click.option(
                "--only", multiple=True, metavar="GLOB", help=f"{does} only layers whose name matches; repeatable."
            ),
            click.option("--skip", multiple=True, metavar="GLOB", help="Leave out layers of such a name; repeatable."),
        )(called)

    return decorate


SAID = ("arch", "arch_args", "max_size", "allow", "trust_pickle")
sizing = click.option(
    "--max-size", type=float, default=8, show_default=True, metavar="GIB", help="Refuse files larger than this."
)
READING = (
    click.option(
        "--arch",
        metavar="KIND:NAME",
        help="How to build the network: torchvision:NAME, timm:NAME, transformers:FOLDER, package.module:factory "
        "or file.py:factory; or the name that the weights must fit, such as resnet18.",
    ),
    click.option("--arch-args", metavar="JSON", help="Arguments for building it: '{\"num_classes\": 10}'."),
    sizing,
    click.option(
        "--allow",
        multiple=True,
        metavar="CLASS",
        help="Allow this class (package.Class) in a pickled module; repeatable.",
    ),
    click.option(
        "--trust-pickle", is_flag=True, help="Run whatever code a pickle names. Only for files that you trust."
    ),
)
PREPARING = (
    click.option(
        "--mean",
        metavar="M,M,M",
        help="Mean for normalising images (pixels from 0 to 1); the network's own by default.",
    ),
    click.option(
        "--std", metavar="S,S,S", help="Standard deviation for normalising images; the network's own by default."
    ),
)


def gathered(
    name: str, make: Callable[..., Any], parts: tuple[str, ...], decorators: tuple[Callable[[Any], Any], ...]
) -> Callable[[Any], Any]:
    """Options that are given to a command as one argument, which `make` makes of them."""

    def decorate(command: Any) -> Any:
        @wraps(command)
        def called(*args: Any, **given: Any) -> Any:
            value = make(**{part: given.pop(part) for part in parts})
            return command(*args, **{name: value}, **given)

        return options(*decorators)(called)

    return decorate


def as_reading(**parts: Any) -> Any:
    """The options on files as one value, whose class imports torch."""
    from conv2attn.checkpoints.reading_options import Reading

    return Reading(**parts)


@final
@dataclass(frozen=True)
class Running:
    """What networks run on, and where, as the options say."""

    input_size: str | None = None
    input_range: float = 1.0
    inputs: str | None = None
    seed: int = 0
    dtype: str | None = None
    device: str = "cpu"


reading = gathered("reading", as_reading, SAID, READING)
reading_images = gathered("reading", as_reading, (*SAID, "mean", "std"), READING + PREPARING)
PLACING = (
    click.option(
        "--dtype",
        type=click.Choice(["float64", "float32", "bfloat16", "float16"]),
        help="Cast the networks to this dtype first.",
    ),
    click.option("--device", default="cpu", show_default=True, help="Device to run on."),
)
placing = gathered("running", Running, ("dtype", "device"), PLACING)
RUNNING = (
    click.option("--input-size", metavar="CxHxW", help="Size of the random images; the architecture's own by default."),
    click.option(
        "--input-range",
        type=float,
        metavar="R",
        default=1.0,
        show_default=True,
        help="Random images lie between -R and R.",
    ),
    click.option(
        "--inputs",
        type=Read(),
        help="Run both networks on these images: a PNG, JPEG, folder, .npy, .npz or .pt file.",
    ),
    click.option(
        "--seed", type=click.IntRange(0, 2**64 - 1), default=0, show_default=True, help="Seed of the random images."
    ),
    *PLACING,
)
running = gathered("running", Running, tuple(each.name for each in fields(Running)), RUNNING)


plotting = click.option(
    "--plot",
    type=Written(PICTURE),
    metavar="FILE",
    help="Draw each layer's error beside its bound.",
)


def command_line(context: click.Context) -> str:
    """The command for this result: arguments, and the options that are not as by default."""
    arguments = (each for each in context.command.params if isinstance(each, click.Argument))
    given = (context.params.get(str(each.name)) for each in arguments)
    files = [str(each) for each in given if each is not None]
    return shlex.join(["conv2attn", str(context.info_name), *files, *said(context, context.command)])


def said(context: click.Context, command: click.Command) -> list[str]:
    """The options of `command` that are not as by default in a call, without those that write."""
    words = list[str]()
    for parameter in command.params:
        value = context.params.get(str(parameter.name))
        if isinstance(parameter, click.Option) and parameter.name not in WRITING:
            default = value in (None, (), parameter.get_default(context))
            values: tuple[Any, ...] = () if default else value if isinstance(value, tuple) else (value,)
            words += [
                word for each in values for word in (parameter.opts[0], *([] if parameter.is_flag else [str(each)]))
            ]
    return words
