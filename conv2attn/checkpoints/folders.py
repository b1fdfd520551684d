"""Folders as Hugging Face has them: config.json beside weights in one file, or in shards that an index lists."""

import hashlib
import json
from pathlib import Path
from typing import Any

from conv2attn.checkpoints.kinds import open_file
from conv2attn.errors import CheckpointError

LARGEST_TEXT = 1 << 24
WEIGHTS = ("model.safetensors", "pytorch_model.bin", "diffusion_pytorch_model.safetensors")
INDEXES = tuple(f"{name}.index.json" for name in WEIGHTS)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        CheckpointError: it is missing (C2A301), too large (C2A307), or no such file (C2A303).
    """
    with open_file(path) as file:
        if (size := path.stat().st_size) > LARGEST_TEXT:
            reason = f"{path} has {size:,} bytes, more than {LARGEST_TEXT:,}"
            raise CheckpointError("C2A307", reason, "Pass the folder of a model, whose JSON files are small.")
        try:
            content = json.load(file)
        except (ValueError, RecursionError) as error:
            raise CheckpointError("C2A303", f"{path} is not JSON ({error})", "Download it again.") from error
    if not isinstance(content, dict):
        raise CheckpointError("C2A303", f"{path} holds a {type(content).__name__}, not an object", "Download it again.")
    return content


def weight_files(folder: Path) -> list[Path]:
    """The files of weights in a folder: one, or the shards of an index.

    Raises:
        CheckpointError: there is none (C2A301), or an index names a file that is not in the folder (C2A303).
    """
    if single_file := next((folder / name for name in WEIGHTS if (folder / name).is_file()), None):
        return [single_file]
    index = next((folder / name for name in INDEXES if (folder / name).is_file()), None)
    if index is None:
        reason = f"{folder} is a folder without {' or '.join(WEIGHTS[:2])}"
        raise CheckpointError("C2A301", reason, "Pass the file of weights in it.")
    weight_map = read_json(index).get("weight_map")
    if (
        not isinstance(weight_map, dict)
        or not weight_map
        or not all(isinstance(each, str) for each in weight_map.values())
    ):
        raise CheckpointError("C2A303", f"{index} has no weight_map of file names", "Download it again.")
    names = sorted(set(weight_map.values()))
    if outside := [name for name in names if Path(name).name != name]:
        raise CheckpointError(
            "C2A303", f"{index} names {outside[0]!r}, which is not in its folder", "Download the whole folder again."
        )
    return [folder / name for name in names]


def sha256(path: Path) -> str:
    """The hash of a file, or that of the hashes of the weight files of a folder, in their order."""
    if path.is_dir():
        return hashlib.sha256("".join(map(sha256, weight_files(path))).encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
