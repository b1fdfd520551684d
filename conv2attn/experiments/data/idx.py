"""The idx format of the MNIST family: a header with the shape, then bytes; gzipped or not."""

import gzip
import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from conv2attn.errors import CheckpointError


def read_idx(path: Path) -> Tensor:
    """The bytes of an idx file, in the shape that its header gives.

    Raises:
        CheckpointError: it is missing (C2A301), damaged (C2A302), or not an idx file of bytes (C2A303).
    """
    try:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except FileNotFoundError as error:
        raise CheckpointError("C2A301", f"{path} does not exist") from error
    except (OSError, EOFError) as error:
        raise CheckpointError("C2A302", f"{path} cannot be unpacked ({error})") from error
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08":
        raise CheckpointError("C2A303", f"{path} is not an idx file of bytes")
    axes = raw[3]
    start = 4 + 4 * axes
    shape = [int(side) for side in np.frombuffer(raw[4:start], ">i4")] if len(raw) >= start else [-1]
    if len(raw) - start != math.prod(shape):
        raise CheckpointError("C2A302", f"{path} holds {len(raw) - start} bytes, and its header asks for {shape}")
    return torch.from_numpy(np.frombuffer(raw, np.uint8, offset=start).reshape(shape).copy())
