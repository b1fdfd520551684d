"""Files of tensors, read without executing anything in them and refused where they are not what they claim to be."""

import os
import re
import stat
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from conv2attn.errors import CheckpointError

LARGEST_FILE = 1 << 33  # bytes: thirty times the float32 weights of a ResNet-152
LARGEST_PICKLE = 1 << 26  # bytes: some 200 describe a tensor, and no network here has a hundred thousand
ZIP, LEGACY = b"PK\x03\x04", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
DIRECTORY = 0x10  # an attribute of zip entries; for an entry that has it torch.load returns memory as it finds it
WRAPPERS = ("state_dict", "model_state_dict", "model")
PREFIXES = ("module.", "_orig_mod.")


def read(path: str | os.PathLike[str], limit: int = LARGEST_FILE) -> dict[Any, Any]:
    """What `torch.save` wrote: a dict of tensors and plain values, every byte of it checked that can be.

    `torch.load(weights_only=True)` alone executes nothing, but it does not compare the checksums that `torch.save`
    writes; here they are compared first. Files in the format before torch 1.6 have none.

    Args:
        path: a regular file.
        limit: the most bytes that are read.
    Raises:
        CheckpointError: C2A301 where there is no such file, C2A302 where it is damaged, C2A303 where it holds
            something else or lies about its size, C2A307 where it is larger than `limit`.
    """
    path = Path(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            kind = "a directory, not a file" if path.is_dir() else "not a regular file"
            raise CheckpointError("C2A301", f"{path} is {kind}")
        with path.open("rb") as file:
            _inspect(path, file, limit)
            file.seek(0)
            content = _unpickle(path, file)
    except FileNotFoundError:
        raise CheckpointError("C2A301", f"{path} does not exist") from None
    except OSError as error:
        raise CheckpointError("C2A301", f"{path} cannot be read: {error.strerror or error}") from error
    if not isinstance(content, dict):
        raise CheckpointError("C2A303", f"{path} holds a {type(content).__name__}, not a dict of tensors")
    for name, tensor in _tensors(content):
        plain = tensor.layout == torch.strided and tensor.device.type == "cpu"
        if not plain or tensor.is_nested or tensor.is_quantized:
            raise CheckpointError("C2A303", f"{path}: {name!r} is not a plain dense tensor")
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise CheckpointError("C2A303", f"{path}: {name!r} claims {tensor.numel()} elements, more than are stored")
    return content


def tensors_in(content: Mapping[Any, Any]) -> dict[str, Tensor] | None:
    """The state dict that `content` is or wraps, without the prefixes of wrapping modules; None if there is none.

    >>> list(tensors_in({"epoch": 3, "state_dict": {"module.fc.bias": torch.zeros(2)}}))
    ['fc.bias']
    """
    inside = next((content[key] for key in WRAPPERS if isinstance(content.get(key), Mapping)), content)
    if not inside or not all(isinstance(key, str) and isinstance(value, Tensor) for key, value in inside.items()):
        return None
    state = {key: torch.Tensor.detach(tensor) for key, tensor in inside.items()}
    while prefix := next((prefix for prefix in PREFIXES if all(key.startswith(prefix) for key in state)), None):
        state = {key.removeprefix(prefix): tensor for key, tensor in state.items()}
    return state


def read_tensors(path: str | os.PathLike[str], limit: int = LARGEST_FILE) -> dict[str, Tensor]:
    """The state dict in a file, by itself or under one of the usual keys; see `read` for what is refused."""
    state = tensors_in(read(path, limit))
    if state is None:
        raise CheckpointError("C2A303", f"{path} holds a dict, but not one of names and tensors")
    return state


def _inspect(path: Path, file: IO[bytes], limit: int) -> None:
    """Refuse by the file's kind, size, names and checksums, before anything in it is believed."""
    size = os.fstat(file.fileno()).st_size
    if size == 0:
        raise CheckpointError("C2A302", f"{path} is empty")
    if size > limit:
        raise CheckpointError("C2A307", f"{path} has {size} bytes, more than {limit}")
    head = file.read(len(LEGACY))
    if head.startswith(ZIP):
        try:
            with zipfile.ZipFile(file) as archive:
                _inspect_archive(path, archive, size)
        except CheckpointError:
            raise
        except Exception as error:
            raise CheckpointError("C2A302", f"{path} is truncated or damaged: {error}") from error
    elif not LEGACY.startswith(head):
        raise CheckpointError("C2A303", f"{path} was not written by torch.save")


def _inspect_archive(path: Path, archive: zipfile.ZipFile, size: int) -> None:
    entries = archive.infolist()
    twice = [name for name, count in Counter(entry.filename.lower() for entry in entries).items() if count > 1]
    if twice:
        raise CheckpointError("C2A303", f"{path} holds two entries named {twice[0]!r}: readers differ on which counts")
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
            raise CheckpointError("C2A303", f"{path}: {entry.filename!r} is compressed or encrypted")
        if entry.external_attr & DIRECTORY:
            raise CheckpointError("C2A302", f"{path}: {entry.filename!r} is marked as a directory")
    if sum(entry.file_size for entry in entries) > size:
        raise CheckpointError("C2A303", f"{path} claims more bytes than it has")
    pickles = [entry for entry in entries if entry.filename.split("/")[-1] == "data.pkl"]
    if any(entry.filename.split("/")[-1] == "constants.pkl" for entry in entries):
        raise CheckpointError("C2A303", f"{path} is a TorchScript program, not tensors")
    if len(pickles) != 1:
        raise CheckpointError("C2A303", f"{path} is an archive with {len(pickles)} entries named data.pkl, not one")
    if pickles[0].file_size > LARGEST_PICKLE:
        raise CheckpointError(
            "C2A307", f"{path}: data.pkl has {pickles[0].file_size} bytes, more than {LARGEST_PICKLE}"
        )
    if damaged := archive.testzip():
        raise CheckpointError("C2A302", f"{path}: {damaged!r} does not match its checksum")


def _unpickle(path: Path, file: IO[bytes]) -> object:
    """`torch.load` with its many kinds of failure told apart, and its advice to allow code left out."""
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = str(error)
        if isinstance(error, EOFError) or "unexpected EOF" in reason:
            raise CheckpointError("C2A302", f"{path} is truncated") from error
        if code := re.search(r"GLOBAL ([\w.]+)", reason):
            found = f"{path} holds more than tensors: it names {code[1]}, which is code, and nothing was run"
        elif "resize storage" in reason or "byte size" in reason:
            found = f"{path} holds a tensor that claims more elements than are stored"
        else:
            found = f"{path} is not something that torch.load(weights_only=True) accepts ({type(error).__name__})"
        raise CheckpointError("C2A303", found) from error


def _tensors(content: object) -> Iterator[tuple[str, Tensor]]:
    """Every tensor at any depth, with the keys that lead to it; a container that holds itself is visited once."""
    waiting, seen = [("", content)], set[int]()
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, (Mapping, list, tuple, set)) and id(value) not in seen:
            seen.add(id(value))
            pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
            waiting += [(f"{name}.{key}".lstrip("."), inside) for key, inside in pairs]
