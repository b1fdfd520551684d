"""What a file or folder of weights holds, by one reader for all kinds, and nothing executed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from torch import Tensor

from conv2attn.checkpoints.folders import read_json, sha256, weight_files
from conv2attn.checkpoints.kinds import Kind
from conv2attn.checkpoints.preflight import LARGEST_FILE, inspect, opened
from conv2attn.checkpoints.reading import check_tensors, read_safetensors, unpickled
from conv2attn.errors import CheckpointError

READ = (Kind.TORCH, Kind.LEGACY, Kind.SAFETENSORS)


@final
@dataclass(frozen=True)
class Contents:
    """The dict of a file, the metadata beside its tensors, and for a folder its configuration."""

    path: Path
    kind: Kind
    content: Mapping[Any, Any]
    metadata: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] | None = None

    @property
    def sha256(self) -> str:
        """The hash of the file, or of the hashes of the folder's weight files."""
        return sha256(self.path)


def contents_of(path: Path, limit: int = LARGEST_FILE) -> Contents:
    """What is in a file of `torch.save` or safetensors, or in a folder with a config.json.

    Args:
        path: the file or folder.
        limit: the most bytes that are read, of all files together.
    Raises:
        CheckpointError: C2A301 where there is none, C2A302 where it is damaged, C2A303 where it is of another kind or
            holds more than tensors, C2A307 where it is larger than `limit`.
    """
    if path.is_dir():
        return contents_of_folder(path, limit)
    with opened(path) as file:
        kind = inspect(path, file, limit)
        if kind not in READ:
            raise CheckpointError("C2A303", f"{path} is {kind.article}", kind.way_out)
        if kind is not Kind.SAFETENSORS:
            return Contents(path, kind, unpickled(path, file))
    tensors, metadata = read_safetensors(path)
    check_tensors(path, tensors)
    return Contents(path, kind, tensors, metadata)


def contents_of_folder(folder: Path, limit: int) -> Contents:
    """The tensors of all weight files in a folder, by name, and its configuration."""
    if not (folder / "config.json").is_file():
        found = f"{folder} is a directory without a config.json"
        raise CheckpointError("C2A301", found, "Pass the file of weights in it, or a Hugging Face folder.")
    config = read_json(folder / "config.json")
    tensors: dict[str, Tensor] = {}
    for path in weight_files(folder):
        if not path.is_file():
            raise CheckpointError("C2A301", f"{path}, which the index of {folder} names, does not exist")
        limit -= path.stat().st_size
        if limit < 0:
            raise CheckpointError("C2A307", f"the weights in {folder} have more bytes than the limit")
        held = contents_of(path)
        if twice := tensors.keys() & held.content.keys():
            raise CheckpointError("C2A303", f"{folder} holds {min(twice)!r} in two of its files")
        tensors |= held.content
    return Contents(folder, Kind.FOLDER, tensors, {}, config)
