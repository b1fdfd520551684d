"""The files that a command reads and writes, checked before it imports torch and before any work is done."""

import os
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path

import click

from conv2attn.errors import CheckpointError, UsageError
from conv2attn.suffixes import PICTURE


class Read(click.Path):
    """A file or folder that a command reads."""


class Written(click.Path):
    """A file that a command writes, whose suffix is one of `suffixes`."""

    def __init__(self, suffixes: Collection[str]):
        super().__init__()
        self.suffixes = tuple(suffixes)


def check_paths(context: click.Context) -> None:
    """Refuses files of a call that are missing, in the way, of another suffix, or read and written at once.

    Raises:
        CheckpointError: a file to read is missing (C2A301); see `check_free`.
        UsageError: the suffix of a file to write is not one of its option's (C2A308), a picture needs matplotlib
            (C2A003); see `check_free`.
    """
    read, written = list[str](), list[str]()
    for each in context.command.params:
        if not isinstance(each.type, Read | Written):
            continue
        value = context.params.get(str(each.name)) or ()
        paths = [value] if isinstance(value, str) else value
        match each.type:
            case Read():
                read += paths
                for path in paths:
                    if not os.path.lexists(path):
                        raise CheckpointError("C2A301", f"{path} does not exist", "Check the path.")
            case Written():
                written += paths
                for path in paths:
                    check_suffix(each, path, each.type.suffixes)
    check_free(bool(context.params.get("force")), *written, read=read)


def check_suffix(option: click.Parameter, path: str, suffixes: tuple[str, ...]) -> None:
    """Refuses a file of a suffix that an option does not write (C2A308), and a picture without matplotlib (C2A003)."""
    told = option.opts[0] if isinstance(option, click.Option) else option.human_readable_name
    if Path(path).suffix not in suffixes:
        raise UsageError("C2A308", f"{told} {path} has none of the suffixes {', '.join(suffixes)}", "Name one of them.")
    if suffixes == PICTURE and find_spec("matplotlib") is None:
        raise UsageError("C2A003", f"{told} needs matplotlib", "Install it: pip install 'conv2attn[plot]'.")


def check_free(force: bool, *written: str | Path, read: Collection[str] = ()) -> None:
    """Refuses files that could not be written, and those that would destroy what the call reads.

    Raises:
        CheckpointError: a file is there and not to be overwritten (C2A305), or its folder is missing or takes no files
            (C2A301).
        UsageError: one file is to hold two things, or is read as well (C2A004).
    """
    wanted, needed = [Path(path) for path in written], [Path(path).resolve() for path in read]
    for place, path in enumerate(wanted):
        if path.resolve() in needed:
            raise UsageError("C2A004", f"{path} is read by this call, and would be overwritten", "Name another file.")
        if path.resolve() in [other.resolve() for other in wanted[:place]]:
            raise UsageError("C2A004", f"{path} is to hold both the report and something else", "Name two files.")
        if path.exists() and not force:
            raise CheckpointError("C2A305", f"{path} exists", "Choose another name, or pass --force.")
        if not path.parent.is_dir():
            raise CheckpointError("C2A301", f"{path.parent} is not a folder", "Make it first, or choose another.")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            found = f"{path} cannot be written: its folder takes no files from this user"
            raise CheckpointError("C2A301", found, "Choose another folder.")
