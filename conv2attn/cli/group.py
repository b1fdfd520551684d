"""The group of all commands: their help, and the handling of their errors."""

import errno
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from types import FrameType
from typing import Any, NoReturn

import click

from conv2attn.cli.options import FILES, RUNS, check_read, check_written, heading_of
from conv2attn.errors import OPTION, Conv2AttnError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NEAR = 0.75  # click's own 0.6 offers --force for --tolerance: the dashes count
INTERRUPTED = 130  # 128 and the number of the signal, as shells count
SECTIONS = {
    "Convert and verify": ("demo", "convert", "verify", "symmetric", "recheck"),
    "See what attention does": ("heads", "explore", "check-span", "recover", "distil"),
    "Train attention": ("soften", "train"),
    "Look up": ("inspect", "explain", "prove"),
}
HEADINGS = ("Options", FILES, RUNS, "Replace heads", "Network", "Data", "Optimisation", "Report")


class Command(click.Command):
    """A command with an example in its help, its options in groups, and a check of them before torch is imported."""

    def __init__(self, *args: Any, example: str, check: Callable[[click.Context], None] | None = None, **rest: Any):
        """Takes an example, and a check of the options by name."""
        super().__init__(*args, **rest)
        self.example, self.check = example, check

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Parses the options; an unknown name is refused with a suggestion of similar options."""
        try:
            return super().parse_args(context, args)
        except click.NoSuchOption as error:
            near = get_close_matches(error.option_name, error.possibilities or (), cutoff=NEAR)
            raise click.NoSuchOption(error.option_name, possibilities=near, ctx=error.ctx or context) from error
        except click.UsageError as error:
            error.ctx = error.ctx or context  # click omits it for an option without its argument
            raise

    def invoke(self, context: click.Context) -> Any:
        """Checks the call before its output files, since another mistake would remain after the output is renamed."""
        check_read(context)
        if self.check is not None:
            self.check(context)
        check_written(context)
        return super().invoke(context)

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options, each below its heading."""
        sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in HEADINGS}
        for each in self.get_params(context):
            if isinstance(each, click.Option) and (record := each.get_help_record(context)):
                sections[heading_of(each)].append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the example."""
        with formatter.section("Example"):
            formatter.write(f"  {self.example}\n")


class Group(click.Group):
    """Turns the project's errors into one sentence on stderr and their exit code; an internal error exits with 70."""

    command_class = Command

    def main(self, *args: Any, **extra: Any) -> Any:
        """Runs a call in a process that may have no standard output and may be interrupted at any time."""
        # Python's stream is None if a job closed it (`>&-`). An open null device also occupies its descriptor;
        # otherwise the next opened file would get it, and a library that writes to descriptor 1 would print into that
        # file.
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:
                setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  as long as the process
        with leaving_at_once_while_torch_starts():
            return super().main(*args, **extra)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes every command with its whole first sentence."""
        named = {name for names in SECTIONS.values() for name in names}
        rest = tuple(name for name in self.list_commands(context) if name not in named)
        for section, names in {**SECTIONS, "Commands": rest}.items():
            commands = [(name, self.commands[name]) for name in names if name in self.commands]
            lines = [(name, command.get_short_help_str(limit=200)) for name, command in commands]
            if lines:
                with formatter.section(section):
                    formatter.write_dl(lines)

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Refuses unknown options of the group in the same way as those of its commands."""
        try:
            return super().parse_args(context, args)
        except click.exceptions.NoSuchOption as error:
            refuse_usage(error)

    def invoke(self, context: click.Context) -> Any:
        """Runs the command."""
        try:
            return super().invoke(context)
        except Conv2AttnError as error:
            click.echo(
                f"error: {error.code} {error.found.rstrip('.')}. {advice(error, invoked(self, context))}", err=True
            )
            sys.exit(error.exit_code)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            refuse_usage(error)
        except (KeyboardInterrupt, click.Abort):
            click.echo("interrupted", err=True)
            sys.exit(INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, BrokenPipeError):
            raise
        except Exception as error:
            if isinstance(error, OSError) and (error.filename or error.errno in FULL):
                reason = f"{error.filename or 'what this call writes'} cannot be read or written: {error.strerror}"
                click.echo(f"error: C2A301 {reason}. Make room, or choose another name or folder.", err=True)
                sys.exit(2)
            if context.params.get("debug"):
                raise
            click.echo(f"internal error: {type(error).__name__}: {error}; --debug shows where", err=True)
            sys.exit(70)


@contextmanager
def leaving_at_once_while_torch_starts() -> Iterator[None]:
    """Within the block, an interruption while torch is imported ends the process with one word (130).

    An exception there would pass through torch's C++ code, which aborts, or through handlers of failed imports, which
    mistake it for another error. Nothing has been written yet, so no cleanup is needed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "torch":
                os.write(2, b"interrupted\n")
                os._exit(INTERRUPTED)
            frame = frame.f_back
        signal.default_int_handler(number, None)

    before = signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def refuse_usage(error: click.UsageError) -> NoReturn:
    """Prints in one line what is wrong with a call, and exits with 2."""
    path = error.ctx.command_path if error.ctx else "conv2attn"
    if isinstance(error, click.NoSuchOption):
        # In our own words, since click's differ between versions.
        near = " or ".join(map(repr, sorted(error.possibilities or ())))
        reason = f"No such option {error.option_name!r}{f'. Did you mean {near}?' if near else ''}"
    else:
        reason = error.format_message().rstrip(".").removesuffix("?.")
    click.echo(f"error: C2A006 {reason}{'' if reason.endswith('?') else '.'} See {path} --help.", err=True)
    sys.exit(error.exit_code)


def invoked(group: click.Group, context: click.Context) -> click.Command:
    """The command of a call, or the group itself if there is none."""
    return group.commands.get(str(context.invoked_subcommand), group)


def advice(error: Conv2AttnError, command: click.Command) -> str:
    """The remedy of an error; an option that `command` lacks is named with the command that has it."""
    if "conv2attn " in error.remedy:
        return error.remedy
    own = options_of(command)

    def placed(option: re.Match[str]) -> str:
        # Remedies name options of any command: an option that this command lacks comes with the name of one that has
        # it.
        others = (name for names in SECTIONS.values() for name in names if option[0] in options_of(main.commands[name]))
        other = None if option[0] in own else next(others, None)
        return f"{option[0]} (of conv2attn {other})" if other else option[0]

    return OPTION.sub(placed, error.remedy)


def options_of(command: click.Command) -> set[str]:
    """The options of a command, and of the commands in it."""
    own = {word for each in command.params for word in (*each.opts, *each.secondary_opts)}
    return own.union(*map(options_of, command.commands.values() if isinstance(command, click.Group) else ()))


@click.group("conv2attn", cls=Group, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(package_name="conv2attn")
@click.option("--debug", is_flag=True, help="Show the traceback of an internal error.")
def main(debug: bool) -> None:
    """Turn convolutions into equal multi-head self-attention layers, and verify that they are equal.

    Exit codes: 0 holds; 1 refuted; 2 wrong usage or unreadable input; 3 undecided, unsupported or nothing checked;
    70 an internal error; 130 interrupted.

    \b
    Completion for bash; for zsh and fish, write zsh_source and fish_source:
      eval "$(_CONV2ATTN_COMPLETE=bash_source conv2attn)"
    """
