"""Checks of a file before its contents are used: size, entries, checksums and claims."""

import os
import stat
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from conv2attn.checkpoints import kinds
from conv2attn.checkpoints.kinds import Kind, kind_of_file
from conv2attn.errors import CheckpointError

LARGEST_FILE = 1 << 33  # bytes: thirty times the float32 weights of a ResNet-152
LARGEST_PICKLE = 1 << 26  # bytes: some 200 describe a tensor, and no network here has a hundred thousand
DIRECTORY = 0x10  # an attribute of zip entries; for an entry that has it torch.load returns memory as it finds it


@contextmanager
def open_file(path: Path) -> Iterator[IO[bytes]]:
    """An open regular file.

    Raises:
        CheckpointError: there is none, or it cannot be read (C2A301).
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            kind = "a directory, not a file" if path.is_dir() else "not a regular file"
            raise CheckpointError("C2A301", f"{path} is {kind}", "Pass a regular file.")
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise CheckpointError("C2A301", f"{path} does not exist", "Check the path.") from None
    except OSError as error:
        raise CheckpointError(
            "C2A301", f"{path} cannot be read: {error.strerror or error}", "Check the path, and the rights to read it."
        ) from error


def inspect(path: Path, file: IO[bytes], limit: int = LARGEST_FILE) -> Kind:
    """The kind of a file, refused by size, entries and checksums before anything in it is read.

    Raises:
        CheckpointError: it is empty or damaged (C2A302), lies about its entries (C2A303), or is too large (C2A307).
    """
    size = os.fstat(file.fileno()).st_size
    if size == 0:
        raise CheckpointError("C2A302", f"{path} is empty", "Copy or download it again.")
    if size > limit:
        raise CheckpointError(
            "C2A307",
            f"{path} has {size:,} bytes, more than {limit:,}",
            "Raise --max-size, in GiB, if the file is meant to be so large.",
        )
    try:
        kind = kind_of_file(file, size)
        if kind in (kinds.TORCH, kinds.EXPORT):
            with zipfile.ZipFile(file) as archive:
                inspect_archive(path, archive, size, kind)
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(
            "C2A302", f"{path} is truncated or damaged: {error}", "Copy or download it again."
        ) from error
    return kind


def inspect_archive(path: Path, archive: zipfile.ZipFile, size: int, kind: Kind) -> None:
    """Refuses an archive with ambiguous entries, or entries that do not match their checksums."""
    entries = archive.infolist()
    repeated = [name for name, count in Counter(entry.filename.lower() for entry in entries).items() if count > 1]
    if repeated:
        raise CheckpointError(
            "C2A303",
            f"{path} holds two entries named {repeated[0]!r}: readers differ on which counts",
            "Save it again with torch.save.",
        )
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
            raise CheckpointError(
                "C2A303", f"{path}: {entry.filename!r} is compressed or encrypted", "Save it again with torch.save."
            )
        if entry.external_attr & DIRECTORY:
            raise CheckpointError(
                "C2A302", f"{path}: {entry.filename!r} is marked as a directory", "Copy or download it again."
            )
    if sum(entry.file_size for entry in entries) > size:
        raise CheckpointError("C2A303", f"{path} claims more bytes than it has", "Save it again with torch.save.")
    pickles = [entry for entry in entries if entry.filename.split("/")[-1] == "data.pkl"]
    if kind is kinds.TORCH and len(pickles) != 1:
        raise CheckpointError(
            "C2A303",
            f"{path} is an archive with {len(pickles)} entries named data.pkl, not one",
            "Save it again with torch.save.",
        )
    for entry in pickles:
        if entry.file_size > LARGEST_PICKLE:
            raise CheckpointError(
                "C2A307",
                f"{path}: data.pkl has {entry.file_size} bytes, more than {LARGEST_PICKLE}",
                "Save only its state dict: torch.save(model.state_dict(), path).",
            )
    if damaged := archive.testzip():
        raise CheckpointError(
            "C2A302", f"{path}: {damaged!r} does not match its checksum", "Copy or download it again."
        )
