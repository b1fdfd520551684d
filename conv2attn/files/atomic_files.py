"""Writes files whole or not at all, and overwrites others only with `force`."""

import io
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, final

import torch
from safetensors import SafetensorError

from conv2attn.errors import CheckpointError, first_line

ROOM = "Choose another folder, or make room in this one."


def write_atomically(path: str | os.PathLike[str], payload: object, force: bool = False) -> None:
    """`torch.save(payload)` under a temporary name in the same folder, renamed to `path` once it is on the disk.

    Raises:
        CheckpointError: `path` exists and `force` is false, or it is not a regular file (C2A305); its folder cannot be
            written to (C2A301). No partial file is left after any failure.
    """
    with replacing(Path(path), force) as temporary:
        write_torch(temporary, payload)


def write_torch(path: Path, payload: object) -> None:
    """`torch.save` to a file."""
    with open_for_torch(path) as file:
        torch.save(payload, file)


@final
class ErrorKeepingFile(io.FileIO):
    """A file for writing that keeps its first error, since torch's writers abort the process on an error."""

    error: OSError | None = None

    def write(self, content: Any) -> int:
        """Writes the whole content, unless a write has failed."""
        remaining = memoryview(content).cast("B")
        size = len(remaining)
        try:
            while remaining and self.error is None:
                remaining = remaining[super().write(remaining) :]
        except OSError as error:
            self.error = error
        return size


@contextmanager
def open_for_torch(path: Path) -> Iterator[ErrorKeepingFile]:
    """A file for one of torch's writers.

    Raises:
        OSError: not all of it could be written, as on a full disk.
    """
    with ErrorKeepingFile(path, "wb") as file:
        yield file
    if file.error is not None:
        raise file.error


def write_text_atomically(path: str | os.PathLike[str], text: str, force: bool = False) -> None:
    """Writes text in UTF-8 whole or not at all; bytes that are not UTF-8 are escaped; see `write_atomically`."""
    write_bytes_atomically(path, text.encode(errors="backslashreplace"), force)


def write_bytes_atomically(path: str | os.PathLike[str], content: bytes, force: bool = False) -> None:
    """Writes bytes whole or not at all; see `write_atomically`."""
    with replacing(Path(path), force) as temporary:
        temporary.write_bytes(content)


@contextmanager
def replacing(path: Path, force: bool = False) -> Iterator[Path]:
    """A new empty file next to `path` to write to; once it is complete and on the disk, it replaces `path`.

    Raises:
        CheckpointError: as `write_atomically` does.
    """
    _refuse_if_taken(path, force)
    # A link stays a link: its target is replaced, as by `open(path, "w")`.
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        temporary.open("xb").close()
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        _refuse_if_taken(path, force)
        os.replace(temporary, target)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise CheckpointError("C2A301", f"{path} cannot be written: {reason}", ROOM) from error
    finally:
        with suppress(FileNotFoundError, NotADirectoryError):
            temporary.unlink()


def _refuse_if_taken(path: Path, force: bool) -> None:
    if not os.path.lexists(path):
        return
    if not path.is_file():
        raise CheckpointError("C2A305", f"{path} is not a regular file", "Choose another name.")
    if not force:
        raise CheckpointError("C2A305", f"{path} exists", "Choose another name, or pass --force.")
