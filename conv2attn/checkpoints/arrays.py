"""Files of arrays: what numpy and safetensors write."""

import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from conv2attn.checkpoints.kinds import Kind, kind_of_path
from conv2attn.errors import CheckpointError


def holds_arrays(path: str) -> bool:
    """Whether a file holds arrays that can be attention, of three or four axes each, and no network."""
    with suppress(OSError, zipfile.BadZipFile, SafetensorError):
        match kind_of_path(Path(path)):
            case Kind.ARRAYS:
                return True
            case Kind.SAFETENSORS:
                with safe_open(path, framework="pt") as file:
                    shapes = [file.get_slice(key).get_shape() for key in file.keys()]  # noqa: SIM118
                    return "conv2attn" not in (file.metadata() or {}) and all(len(each) in (3, 4) for each in shapes)
            case _:
                return False
    return Path(path).suffix in (".npz", ".npy", ".safetensors")


def stored(path: str) -> dict[str, Any]:
    """The arrays of a file, by name.

    Raises:
        CheckpointError: missing, or not such a file (C2A301, C2A303).
    """
    if not Path(path).is_file():
        raise CheckpointError("C2A301", f"{path} does not exist")
    try:
        if Path(path).suffix == ".safetensors":
            return dict(load_file(path))
        held = np.load(path, allow_pickle=False)
        return dict(held) if isinstance(held, np.lib.npyio.NpzFile) else {"attention": held}
    except (OSError, ValueError, ImportError, EOFError, zipfile.BadZipFile, SafetensorError) as error:
        told = str(error).splitlines()[0]
        remedy = "Write it with numpy.save, numpy.savez or safetensors."
        raise CheckpointError("C2A303", f"{path} does not hold arrays ({told})", remedy) from error
