"""Reads the tensors and plain values of a file without executing anything in it."""

import re
import warnings
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from conv2attn.errors import CheckpointError, first_line
from conv2attn.files import kinds
from conv2attn.files.budget import Budget, plain_content
from conv2attn.files.kinds import LARGEST_FILE, inspect, open_file


def read_dict(path: str | PathLike[str], limit: int = LARGEST_FILE) -> dict[Any, Any]:
    """Reads a file of `torch.save`: a dict of tensors and plain values, with its checksums verified.

    `torch.load(weights_only=True)` alone executes nothing, but it does not compare the checksums that `torch.save`
    writes; here they are compared first. Files in the format before torch 1.6 have none.

    Args:
        path: a regular file.
        limit: the most bytes that are read.
    Raises:
        CheckpointError: the file is missing (C2A301), damaged (C2A302), has other contents or misstates its size
            (C2A303), or is larger than `limit` (C2A307).
    """
    path = Path(path)
    with open_file(path) as file:
        kind = inspect(path, file, limit)
        if kind not in (kinds.TORCH, kinds.LEGACY):
            raise CheckpointError("C2A303", f"{path} is {kind.article}", kind.way_out or kinds.SAVE_STATE)
        return unpickle_dict(path, file)


def unpickle_dict(path: Path, file: IO[bytes]) -> dict[Any, Any]:
    """The dict in an open file of `torch.save` that was inspected before, its tensors checked."""
    content = content_of(path, file)
    if not isinstance(content, dict):
        raise CheckpointError(
            "C2A303",
            f"{path} holds a {type(content).__name__}, not a dict of tensors",
            kinds.SAVE_STATE,
        )
    return content


def plain_load(file: IO[bytes]) -> Any:
    """The result of `torch.load(weights_only=True)` for a file, on the CPU."""
    # Versions of torch warn of different kinds of tensors; this project decides itself which are refused.
    with warnings.catch_warnings(action="ignore"):
        return torch.load(file, map_location="cpu", weights_only=True)


def content_of(path: Path, file: IO[bytes]) -> Any:
    """Reads an open file of `torch.save` that was inspected before, and checks its tensors."""
    file.seek(0)
    try:
        content = plain_load(file)
    except Exception as error:
        message = str(error)
        if isinstance(error, EOFError) or "unexpected EOF" in message:
            raise CheckpointError("C2A302", f"{path} is truncated", kinds.COPY_AGAIN) from error
        if code := re.search(r"GLOBAL ([\w.]+)", message):
            reason = f"{path} holds more than tensors: it names {code[1]}, which is code, and nothing was run"
        elif "resize storage" in message or "byte size" in message:
            reason = f"{path} holds a tensor that claims more elements than are stored"
        else:
            reason = f"{path} is not something that torch.load(weights_only=True) accepts ({type(error).__name__})"
        raise CheckpointError("C2A303", reason, kinds.SAVE_STATE) from error
    budget = Budget.of(path)
    content = plain_content(content, budget)
    check_tensors(path, content, budget)
    return content


def check_tensors(path: Path, content: object, budget: Budget) -> None:
    """Refuses tensors that are not plain, dense and within their storage (C2A303).

    A pickle can create a tensor without a storage in the file, so storages draw from the budget before they are read.
    """
    for name, tensor in tensors_within(content):
        plain = tensor.layout == torch.strided and tensor.device.type == "cpu"
        if not plain or tensor.is_nested or tensor.is_quantized:
            raise CheckpointError(
                "C2A303", f"{path}: {name!r} is not a plain dense tensor", "Save dense tensors that hold numbers."
            )
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise CheckpointError(
                "C2A303",
                f"{path}: {name!r} claims {tensor.numel()} elements, more than are stored",
                "Save the model again with torch.save(model.state_dict(), path).",
            )
        budget.draw_storage(tensor, name)


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors file by name, and its metadata. The format has no checksum.

    Raises:
        CheckpointError: the file is truncated, or its header does not fit its bytes (C2A302).
    """
    try:
        with safe_open(path, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RuntimeError, TypeError, AttributeError) as error:
        reason = f"{path} is truncated or damaged ({first_line(error)})"
        raise CheckpointError("C2A302", reason, kinds.COPY_AGAIN) from error


def tensors_within(content: object) -> Iterator[tuple[str, Tensor]]:
    """Every tensor at any depth, with the keys that lead to it; a container that contains itself is visited once."""
    waiting, visited = [("", content)], set[int]()
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, (Mapping, list, tuple, set)) and id(value) not in visited:
            visited.add(id(value))
            pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
            waiting += [(f"{name}.{key}".lstrip("."), item) for key, item in pairs]
