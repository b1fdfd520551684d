"""Files of arrays: what numpy and safetensors write."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file

from conv2attn.errors import CheckpointError


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
