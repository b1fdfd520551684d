"""Options shared by several commands: their types, their files, and groups of options as one value."""

import math
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NoReturn, cast, final

import click

from conv2attn.errors import AlphaError, CheckpointError, UsageError
from conv2attn.extras import is_installed, missing
from conv2attn.suffixes import PICTURE_SUFFIXES, REPORT_SUFFIXES

if TYPE_CHECKING:
    from conv2attn.equality import Certificate
    from conv2attn.report import Report

LARGEST_INPUT = 2**26
"""Most numbers of an image, as in `certify`."""
Decorator = Callable[[Any], Any]


class Parsed(click.ParamType):  # type: ignore[type-arg]
    """A value that `read` parses from a text; a text that fails is refused with an example."""

    def __init__(self, name: str, read: Callable[[str], Any], example: str):
        self.name, self.read, self.example = name, read, example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value.

        Raises:
            UsageError: the text is not of this form (C2A006).
        """
        try:
            return self.read(value) if isinstance(value, str) else value
        except UsageError:
            raise
        except ValueError:
            option = f"{param.opts[0]} " if param else ""
            raise UsageError("C2A006", f"{option}{value!r} is not {self.name}", f"Write {self.example}, say.") from None


class Sizes(tuple[int, ...]):
    """Positive integers, written with an x between them on the command line."""

    def __str__(self) -> str:
        return "x".join(map(str, self))


def parse_sizes(text: str) -> Sizes:
    """`14x14` as numbers; a single number is allowed.

    Raises:
        ValueError: the text has another form.
    """
    parts = text.lower().split("x")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(text)
    return Sizes(map(int, parts))


def parse_image_size(text: str) -> Sizes:
    """`3x224x224`, channels and sides, as numbers; `16000`, the length of a wave or a sequence.

    Raises:
        ValueError: the text has another form.
        UsageError: the size is larger than an image may be (C2A001).
    """
    size = parse_sizes(text)
    if math.prod(size) > LARGEST_INPUT:
        raise UsageError("C2A001", f"an image {size} has more than 2^26 numbers", "Pass a smaller --input-size.")
    return size


def parse_shift(text: str) -> tuple[int, ...]:
    """Whole numbers with commas between them.

    Raises:
        ValueError: the text has another form.
    """
    return tuple(map(int, text.split(",")))


@final
class Matched(tuple[str | int, str | int]):
    """A pair of output tensors, printed as on the command line."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self[0]}={self[1]}"


def parse_match(text: str) -> Matched:
    """`logits=0`, tensors of two outputs by name or number.

    Raises:
        ValueError: the text does not have one name or number on each side.
    """
    first, second = (int(each) if each.isdecimal() else each for each in text.split("="))
    if "" in (first, second):
        raise ValueError(text)
    return Matched((first, second))


def parse_sharpness(text: str) -> float:
    """A positive finite number.

    Raises:
        ValueError: the text is not a number.
        AlphaError: the number is not positive and finite (C2A130).
    """
    if not 0 < float(text) < math.inf:
        raise AlphaError("C2A130", f"--alpha {text} is not a positive finite number", "Pass a positive number.")
    return float(text)


class Read(click.Path):
    """A file or folder that a command reads."""


class Written(click.Path):
    """A file that a command writes, whose suffix is one of `suffixes`."""

    def __init__(self, suffixes: Collection[str]):
        super().__init__()
        self.suffixes = tuple(suffixes)


def check_read(context: click.Context) -> None:
    """Refuses missing or unusable input files before torch is imported and before any work is done.

    Raises:
        CheckpointError: a file is missing, or neither a file nor a folder (C2A301).
    """
    for path in paths_of(context, Read):
        check_readable(path)


def check_written(context: click.Context) -> None:
    """Refuses output files that exist, have a wrong suffix, or are read by this call.

    Raises:
        UsageError: a suffix is not supported by its option (C2A308), or a picture needs matplotlib (C2A003); see
            `check_free`.
        CheckpointError: see `check_free`.
    """
    for each in context.command.params:
        path = context.params.get(str(each.name))
        if isinstance(each.type, Written) and path is not None:
            check_suffix(each, path, each.type.suffixes)
    check_free(bool(context.params.get("force")), *paths_of(context, Written), read=paths_of(context, Read))


def paths_of(context: click.Context, kind: type[click.Path]) -> list[str]:
    """The files of a call whose options are of this kind."""
    values = (context.params.get(str(each.name)) for each in context.command.params if isinstance(each.type, kind))
    return [path for value in values for path in ([value] if isinstance(value, str) else value or ())]


def check_readable(path: str) -> None:
    """Refuses anything but a file or a folder (C2A301): a pipe may never end."""
    if not os.path.exists(path):
        remedy = "Check the path. Nothing is downloaded: pass the file or the folder itself."
        raise CheckpointError("C2A301", f"{path or repr(path)} does not exist", remedy)
    if not os.path.isfile(path) and not os.path.isdir(path):
        raise CheckpointError("C2A301", f"{path} is not a regular file", "Pass a regular file.")


def check_suffix(option: click.Parameter, path: str, suffixes: tuple[str, ...]) -> None:
    """Refuses a suffix that an option does not support (C2A308), and a picture without matplotlib (C2A003)."""
    name = option.opts[0] if isinstance(option, click.Option) else option.human_readable_name
    if Path(path).suffix not in suffixes:
        reason = f"{name} {path or repr(path)} has none of the suffixes {', '.join(suffixes)}"
        raise UsageError("C2A308", reason, "Name one of them.")
    if suffixes == PICTURE_SUFFIXES and not is_installed("matplotlib"):
        raise missing("matplotlib", name)


def check_free(force: bool, *written: str | Path, read: Collection[str] = ()) -> None:
    """Refuses files that cannot be written, and those that would overwrite inputs of the call.

    Raises:
        CheckpointError: a file exists and must not be overwritten (C2A305), or its folder is missing or not writable
            (C2A301).
        UsageError: one file is used for two outputs, or is also read (C2A004).
    """
    taken, read_paths = set[str](), set(map(os.path.realpath, read))
    for path in map(Path, written):
        if (place := os.path.realpath(path)) in read_paths:
            raise UsageError("C2A004", f"{path} is read by this call, and would be overwritten", "Name another file.")
        if place in taken:
            raise UsageError("C2A004", f"{path} is the file of both the report and another output", "Name two files.")
        try:
            # `lstat` also finds a link to a missing file, which a new file would replace.
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            raise CheckpointError("C2A301", f"{path} cannot be written: {error.strerror}", "Choose another.") from error
        else:
            if not force:
                raise CheckpointError("C2A305", f"{path} exists", "Choose another name, or pass --force.")
        if not path.parent.is_dir():
            raise CheckpointError("C2A301", f"{path.parent} is not a folder", "Make it first, or choose another.")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            reason = f"{path} cannot be written: its folder is not writable for this user"
            raise CheckpointError("C2A301", reason, "Choose another folder.")
        taken.add(place)


def options(*decorators: Decorator, heading: str = "Options") -> Decorator:
    """Several click options as one decorator, in reading order, below one heading of the help."""

    def decorate(command: Any) -> Any:
        others = len(getattr(command, "__click_params__", ()))
        # click lists options in reverse order of their decorators.
        for decorator in reversed(decorators):
            command = decorator(command)
        for option in command.__click_params__[others:]:
            vars(option).setdefault("heading", heading)
        return command

    return decorate


def output_option(meaning: str, suffixes: Collection[str] = (), required: bool = True) -> Decorator:
    """The option for the output of a command: a file with one of `suffixes`, or a folder."""
    kind, metavar = (Written(suffixes), "FILE") if suffixes else (click.Path(), "FOLDER")
    return click.option("-o", "--output", type=kind, metavar=metavar, required=required, help=meaning)


def grouped(name: str, kind: Callable[..., Any] | str, heading: str, *decorators: Decorator) -> Decorator:
    """Options below one heading that become one argument of a command, of the class `kind` or the class with that name.

    A class by name, "module:Class", is imported when the command runs: its module may import torch.
    """
    together = options(*decorators, heading=heading)
    parts = [each.name for each in together(lambda: None).__click_params__]

    def decorate(command: Any) -> Any:
        @wraps(command)
        def called(*args: Any, **options: Any) -> Any:
            # Imported only now, when torch is needed anyway: `--help` must not import it.
            make = resolve_name(kind) if isinstance(kind, str) else kind
            value = make(**{part: options.pop(part) for part in parts})
            return command(*args, **{name: value}, **options)

        return together(called)

    return decorate


@final
@dataclass(frozen=True)
class Showing:
    """The options on a report: its format on stdout, its detail, and its file."""

    form: str
    report: str | None
    force: bool
    verbose: bool
    quiet: bool
    wide: bool
    plot: str | None = None

    def finish(self, result: "Report", *lines: str) -> NoReturn:
        """Shows the report, prints lines on what was done, and exits with the report's code."""
        self.show(result)
        self.say(*lines)
        sys.exit(result.exit_code)

    def show(self, result: "Report") -> None:
        """Shows the report, and writes it and its picture to files if requested."""
        if self.quiet:
            from conv2attn.report import document

            click.echo(document(result).answer[0])
        elif self.form == "text":
            width = None if self.wide else shutil.get_terminal_size().columns
            click.echo(result.to_text(width, self.verbose, in_colour()), nl=False)
        else:
            click.echo(self.written(result, self.form), nl=False)
        if self.report is not None:
            from conv2attn.files.atomic_files import write_text_atomically

            form = REPORT_SUFFIXES[Path(self.report).suffix]
            write_text_atomically(self.report, self.written(result, form), self.force)
        if self.plot is not None:
            from conv2attn import plots

            plots.write(plots.draw_certificate(cast("Certificate", result)), self.plot, self.force)

    def written(self, result: "Report", form: str) -> str:
        """The report in a form, with a newline at its end."""
        write = getattr(result, f"to_{form}")
        text: str = write() if form in ("json", "csv") else write(verbose=self.verbose)
        return text.rstrip("\n") + "\n"

    def say(self, *lines: str) -> None:
        """Prints on stderr what was done, unless only the verdict is requested."""
        for line in () if self.quiet else lines:
            click.echo(line, err=True)


def in_colour() -> bool:
    """Whether stdout is a terminal with colour; NO_COLOR forbids colour."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


force = options(click.option("--force", is_flag=True, help="Overwrite existing files."), heading="Report")
REPORTING = (
    click.option("-v", "--verbose", is_flag=True, help="Show all assumptions and details."),
    click.option("-q", "--quiet", is_flag=True, help="Show only the verdict."),
    click.option("--wide", is_flag=True, help="Show all columns, even if they do not fit the terminal."),
    click.option(
        "--format",
        "form",
        type=click.Choice([*REPORT_SUFFIXES.values(), "github"]),
        default="text",
        help="Format of the report on stdout; github is text followed by an annotation for GitHub.",
    ),
    click.option(
        "--report",
        type=Written(REPORT_SUFFIXES),
        metavar="FILE",
        help="Also write the report to a .json, .md, .html, .svg, .tex, .csv or .txt file.",
    ),
    force,
)
reporting = grouped("showing", Showing, "Report", *REPORTING)
PLOT = click.option(
    "--plot", type=Written(PICTURE_SUFFIXES), metavar="FILE", help="Draw each layer's error with its bound."
)
reporting_certificates = grouped("showing", Showing, "Report", PLOT, *REPORTING)


def choosing(does: str) -> Decorator:
    """The options that select layers, as one argument `only`; `does` is the verb in their help."""
    return grouped(
        "only",
        "conv2attn.arguments:Selection",
        "Options",
        click.option(
            "--only", multiple=True, metavar="GLOB", help=f"{does} only layers whose name matches; repeatable."
        ),
        click.option("--skip", multiple=True, metavar="GLOB", help="Leave out layers whose name matches; repeatable."),
    )


FILES, RUNS = "How to read the file", "What to run on"
sizing = options(
    click.option("--max-size", type=float, default=8, metavar="GIB", help="Refuse files larger than this."),
    heading=FILES,
)
READING_CLASS = "conv2attn.files.reading_options:Reading"
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
)
PREPARING = options(
    click.option(
        "--mean",
        metavar="M,M,M",
        help="Mean for normalising images (pixels from 0 to 1); the network's own by default.",
    ),
    click.option(
        "--std", metavar="S,S,S", help="Standard deviation for normalising images; the network's own by default."
    ),
    heading=RUNS,
)
reading_options = grouped("reading", READING_CLASS, FILES, *READING)
INPUTS = click.option(
    "--inputs",
    type=Read(),
    help="What to run on: images in a PNG, JPEG or folder; images, waves or ids of tokens in .npy, .npz or .pt; or "
    "several inputs of a call, in order or by argument name, in .npz or .pt.",
)
INPUT_SIZE = click.option(
    "--input-size",
    type=Parsed("positive whole numbers with an x between them", parse_image_size, "3x224x224"),
    metavar="CxHxW",
    help="Shape of one input, such as 3x224x224, or 16000 for a wave; the network's own by default.",
)
reading_images = grouped("reading", READING_CLASS, FILES, *READING, PREPARING)


@final
@dataclass(frozen=True)
class TokenOptions:
    """The options on reading attention: inputs, and the grid of tokens."""

    inputs: str | None
    input_size: Sizes | None
    grid: Sizes | None
    extra_tokens: int | None
    position_only: bool = False
    exact: bool = False


TOKENS = (
    INPUTS,
    INPUT_SIZE,
    click.option(
        "--grid",
        type=Parsed("positive whole numbers with an x between them", parse_sizes, "14x14"),
        metavar="HxW",
        help="Grid of the tokens of a layer, instead of that of the file or the run.",
    ),
    click.option(
        "--extra-tokens",
        type=click.IntRange(0),
        help="Number of leading tokens that are not pixels, such as a class token; the network's own by default.",
    ),
)
tokens = options(grouped("tokens", TokenOptions, RUNS, *TOKENS), reading_images)
tokens_or_positions = options(
    grouped(
        "tokens",
        TokenOptions,
        RUNS,
        *TOKENS,
        click.option(
            "--position-only",
            is_flag=True,
            help="Read attention by position alone; needs no --inputs if the size of images is known.",
        ),
        click.option(
            "--exact",
            is_flag=True,
            help="Treat the arrays as exact: floats as rationals, integers as weights to normalise.",
        ),
    ),
    reading_images,
)


@final
@dataclass(frozen=True)
class Running:
    """The options on running networks: inputs, dtype and device."""

    input_size: Sizes | None = None
    input_range: float = 1.0
    inputs: str | None = None
    seed: int = 0
    dtype: str | None = None
    device: str = "cpu"
    also_size: tuple[Sizes, ...] = ()
    also_mode: tuple[str, ...] = ()


DEVICE = click.option("--device", default="cpu", help="Device to run on.")
PLACING = (
    click.option(
        "--dtype",
        type=click.Choice(["float64", "float32", "bfloat16", "float16"]),
        help="Cast the networks to this dtype first.",
    ),
    DEVICE,
)
running_options = grouped(
    "running",
    Running,
    RUNS,
    INPUT_SIZE,
    click.option(
        "--input-range",
        type=float,
        metavar="R",
        default=1.0,
        help="Random images lie between -R and R.",
    ),
    INPUTS,
    click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=0, help="Seed of the random images."),
    click.option(
        "--also-size",
        type=Parsed("positive whole numbers with an x between them", parse_image_size, "3x97x101"),
        metavar="CxHxW",
        multiple=True,
        help="Compare at this size too; may be repeated.",
    ),
    click.option(
        "--also-mode",
        type=click.Choice(["gradients", "inference"]),
        multiple=True,
        help="Run both networks with gradients, or in inference mode, too; may be repeated.",
    ),
    *PLACING,
)


def shows(parameter: click.Parameter) -> bool:
    """Whether an option concerns the report or an output file, and not the result."""
    return isinstance(parameter.type, Written) or heading_of(parameter) == "Report"


def heading_of(parameter: click.Parameter) -> str:
    """The heading of an option in the help."""
    return str(vars(parameter).get("heading", "Options"))


def command_line(context: click.Context) -> str:
    """The command for this result: arguments, and the options with non-default values."""
    arguments = (each for each in context.command.params if isinstance(each, click.Argument))
    values = (context.params.get(str(each.name)) for each in arguments)
    files = [str(value) for value in values if value is not None]
    return shlex.join(["conv2attn", str(context.info_name), *files, *given_options(context, context.command)])


def given_options(context: click.Context, command: click.Command) -> list[str]:
    """The options of `command` with non-default values in a call, without those on the report and output files."""
    words = list[str]()
    for parameter in command.params:
        value = context.params.get(str(parameter.name))
        if not isinstance(parameter, click.Option) or shows(parameter):
            continue
        if value not in (None, (), parameter.get_default(context)):
            for each in value if parameter.multiple else (value,):
                words += [parameter.opts[0], *([] if parameter.is_flag else [str(each)])]
    return words
