"""Reads arrays by name from files of NumPy, safetensors and torch.save."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from conv2attn.errors import CheckpointError, first_line
from conv2attn.files import kinds
from conv2attn.files.budget import Budget
from conv2attn.files.kinds import inspect, open_file
from conv2attn.files.torch_files import content_of, read_safetensors

ARRAY_REMEDY = "Write it with numpy.save, numpy.savez, torch.save or safetensors."


def content_in(path: Path, remedy: str = ARRAY_REMEDY) -> Any:
    """The content of a file of arrays or tensors: a single one, or nested containers.

    Raises:
        CheckpointError: the file is missing (C2A301), damaged (C2A302), of another kind (C2A303), or too large
            (C2A307).
    """
    with open_file(path) as file:
        kind = inspect(path, file)
        if kind is kinds.ARRAYS:
            try:
                # Zeros compress a thousandfold, so the unpacked size is drawn from the budget before unpacking.
                if zipfile.is_zipfile(file):
                    with zipfile.ZipFile(file) as archive:
                        Budget.of(path).draw(sum(each.file_size for each in archive.infolist()), "its arrays")
                content = np.load(path, allow_pickle=False)
                return dict(content) if isinstance(content, np.lib.npyio.NpzFile) else content
            except CheckpointError:
                raise
            except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile) as error:
                raise CheckpointError("C2A303", f"{path} does not hold arrays ({first_line(error)})", remedy) from error
        if kind is kinds.SAFETENSORS:
            return read_safetensors(path)[0]
        if kind in (kinds.TORCH, kinds.LEGACY):
            return content_of(path, file)
    raise CheckpointError("C2A303", f"{path} is {kind.article}", remedy)


def arrays_in(path: Path, name: str = "attention", remedy: str = ARRAY_REMEDY) -> dict[str, Any]:
    """The arrays and tensors of a file by name: `name` for a single one, `layer 0` and so on for those of a list.

    Raises:
        CheckpointError: see `content_in`.
    """
    content = content_in(path, remedy)
    if isinstance(content, list | tuple):
        content = {f"layer {place}": each for place, each in enumerate(content)}
    named = content if isinstance(content, dict) else {name: content}
    return {str(key): each for key, each in named.items() if isinstance(each, Tensor | np.ndarray)}


def holds_attention(path: str) -> bool:
    """Whether a file has only arrays that can be attention: the first row of each is a distribution.

    NumPy files never store networks, so their arrays are not checked.
    """
    file = Path(path)
    try:
        kind = kinds.kind_of_path(file)
        arrays = arrays_in(file) if kind in (kinds.SAFETENSORS, kinds.TORCH, kinds.LEGACY) else {}
    except (zipfile.BadZipFile, CheckpointError):
        return file.suffix in (".npz", ".npy")
    return kind is kinds.ARRAYS or (bool(arrays) and all(map(is_distribution, arrays.values())))


def is_distribution(array: Tensor) -> bool:
    """Whether an array of three or four axes begins with a row of non-negative weights with sum 1."""
    if array.ndim not in (3, 4) or not array.numel() or not array.is_floating_point():
        return False
    row = array.reshape(-1, array.shape[-1])[0].double()
    return bool((row >= 0).all()) and abs(float(row.sum()) - 1) < 0.01
