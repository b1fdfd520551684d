"""Files of arrays: what numpy, safetensors and torch.save write."""

import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from conv2attn.checkpoints import kinds
from conv2attn.checkpoints.kinds import kind_of_path
from conv2attn.checkpoints.preflight import LARGEST_FILE, inspect, open_file
from conv2attn.checkpoints.torch_files import content_of
from conv2attn.errors import CheckpointError


def holds_attention(path: str) -> bool:
    """Whether a file holds arrays that can be attention, of three or four axes each, and no network."""
    with suppress(OSError, zipfile.BadZipFile, SafetensorError, CheckpointError):
        match kind_of_path(Path(path)):
            case kinds.ARRAYS:
                return True
            case kinds.SAFETENSORS:
                with safe_open(path, framework="pt") as file:
                    shapes = [file.get_slice(key).get_shape() for key in file.keys()]  # noqa: SIM118
                    return "conv2attn" not in (file.metadata() or {}) and all(len(each) in (3, 4) for each in shapes)
            case kinds.TORCH | kinds.LEGACY:
                return are_distributions(saved_tensors(Path(path)))
            case _:
                return False
    return Path(path).suffix in (".npz", ".npy", ".safetensors")


def saved_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a torch.save file by name: one, a list (`outputs.attentions`), or a dict; {} of other contents."""
    with open_file(path) as file:
        if inspect(path, file, LARGEST_FILE) not in (kinds.TORCH, kinds.LEGACY):
            return {}
        content = content_of(path, file)
    if isinstance(content, list | tuple):
        content = {f"layer {place}": each for place, each in enumerate(content)}
    tensors = {"attention": content} if isinstance(content, Tensor) else content
    if not isinstance(tensors, dict) or not all(isinstance(each, Tensor) for each in tensors.values()):
        return {}
    return {str(name): each for name, each in tensors.items()}


def are_distributions(tensors: dict[str, Tensor]) -> bool:
    """Whether all tensors can be attention: the first row of each is a distribution over keys."""
    if not tensors or not all(
        each.ndim in (3, 4) and each.numel() and each.is_floating_point() for each in tensors.values()
    ):
        return False
    rows = [each.reshape(-1, each.shape[-1])[0].double() for each in tensors.values()]
    return all(bool((row >= 0).all()) and abs(float(row.sum()) - 1) < 0.01 for row in rows)


def read_arrays(path: str) -> dict[str, Any]:
    """The arrays of a file, by name.

    Raises:
        CheckpointError: missing, or not such a file (C2A301, C2A303).
    """
    if not Path(path).is_file():
        raise CheckpointError("C2A301", f"{path} does not exist", "Check the path.")
    try:
        if Path(path).suffix == ".safetensors":
            return dict(load_file(path))
        if content := saved_tensors(Path(path)):
            return content
        content = np.load(path, allow_pickle=False)
        return dict(content) if isinstance(content, np.lib.npyio.NpzFile) else {"attention": content}
    except (OSError, ValueError, ImportError, EOFError, zipfile.BadZipFile, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        remedy = "Write it with numpy.save, numpy.savez, torch.save or safetensors."
        raise CheckpointError("C2A303", f"{path} does not hold arrays ({reason})", remedy) from error
