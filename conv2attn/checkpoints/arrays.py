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
from conv2attn.checkpoints.preflight import LARGEST_FILE, inspect, opened
from conv2attn.checkpoints.reading import content_of
from conv2attn.errors import CheckpointError


def holds_arrays(path: str) -> bool:
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
                return attends(saved(Path(path)))
            case _:
                return False
    return Path(path).suffix in (".npz", ".npy", ".safetensors")


def saved(path: Path) -> dict[str, Tensor]:
    """Tensors that torch.save wrote, by name: one, a list of layers (`outputs.attentions`), or a dict; {} of others."""
    with opened(path) as file:
        if inspect(path, file, LARGEST_FILE) not in (kinds.TORCH, kinds.LEGACY):
            return {}
        held = content_of(path, file)
    if isinstance(held, list | tuple):
        held = {f"layer {place}": each for place, each in enumerate(held)}
    named = {"attention": held} if isinstance(held, Tensor) else held
    if not isinstance(named, dict) or not all(isinstance(each, Tensor) for each in named.values()):
        return {}
    return {str(name): each for name, each in named.items()}


def attends(held: dict[str, Tensor]) -> bool:
    """Whether all tensors are heads whose first row is a distribution over keys, which weights are not."""
    if not held or not all(each.ndim in (3, 4) and each.numel() and each.is_floating_point() for each in held.values()):
        return False
    rows = [each.reshape(-1, each.shape[-1])[0].double() for each in held.values()]
    return all(bool((row >= 0).all()) and abs(float(row.sum()) - 1) < 0.01 for row in rows)


def stored(path: str) -> dict[str, Any]:
    """The arrays of a file, by name.

    Raises:
        CheckpointError: missing, or not such a file (C2A301, C2A303).
    """
    if not Path(path).is_file():
        raise CheckpointError("C2A301", f"{path} does not exist", "Check the path.")
    try:
        if Path(path).suffix == ".safetensors":
            return dict(load_file(path))
        if held := saved(Path(path)):
            return held
        held = np.load(path, allow_pickle=False)
        return dict(held) if isinstance(held, np.lib.npyio.NpzFile) else {"attention": held}
    except (OSError, ValueError, ImportError, EOFError, zipfile.BadZipFile, SafetensorError) as error:
        told = str(error).splitlines()[0]
        remedy = "Write it with numpy.save, numpy.savez, torch.save or safetensors."
        raise CheckpointError("C2A303", f"{path} does not hold arrays ({told})", remedy) from error
