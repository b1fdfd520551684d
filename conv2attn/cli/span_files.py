"""The attention that a file holds: networks on inputs or by position alone, and arrays."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from conv2attn.checkpoints.arrays import holds_arrays, stored
from conv2attn.checkpoints.options import Reading
from conv2attn.errors import CheckpointError, UsageError


def network_in(path: str, inputs: str | None, reading: Reading) -> nn.Module | None:
    """The network in a file; None where it holds attention itself. With an architecture, it holds a state dict.

    Raises:
        UsageError: inputs are given for attention itself (C2A004).
    """
    if reading.arch is not None or not holds_arrays(path):
        return reading.load(path)
    if inputs:
        raise UsageError("C2A004", f"--inputs runs a network, and {path} holds attention itself", "Leave it out.")
    return None


def inputs_for(network: nn.Module, inputs: str, size: str | None, reading: Reading) -> tuple[Tensor, str]:
    """What a network takes, from a file: ids of words in an array of integers of two axes, otherwise images.

    Raises:
        CheckpointError: the images cannot be read, or have numbers that are not finite (C2A303).
    """
    if inputs.endswith(".npy"):
        held = np.load(inputs, allow_pickle=False, mmap_mode="r")
        if held.dtype.kind in "iu" and held.dtype != np.uint8 and held.ndim == 2:
            ids = torch.from_numpy(np.array(held, dtype=np.int64))
            return ids, f"{len(ids)} sequences of {ids.shape[1]} ids"
    images, told = reading.images(inputs, network, numbers(size, "--input-size") if size else None)
    if not bool(images.isfinite().all()):
        raise CheckpointError("C2A303", f"{inputs} holds numbers that are not finite", "Pass images.")
    return images, told


@contextmanager
def told_of(network: nn.Module, images: Any) -> Iterator[None]:
    """Says of images on which a network does not run what to pass on the command line.

    Raises:
        UsageError: it does not (C2A009).
    """
    try:
        yield
    except UsageError as error:
        if error.code != "C2A009" or images is None:
            raise
        remedy = "Pass --inputs that it takes, or their size with --input-size."
        raise UsageError("C2A009", error.found, remedy) from error


def arrays(path: str) -> dict[str, Any]:
    """Attention arrays (heads, queries, keys), (layers or images, heads, queries, keys), by name.

    A four-axis array in a file with one array is split into layers; a list of tensors is one of layers already.
    """
    held = stored(path)
    if len(held) == 1 and next(iter(held.values())).ndim == 4 and "layer 0" not in held:
        (name, whole), *_ = held.items()
        return {f"{name}[{index}]": layer for index, layer in enumerate(whole)}
    return held


def numbers(text: str, option: str) -> tuple[int, ...]:
    """`14x14` as numbers; one number stands alone.

    Raises:
        UsageError: they are not positive integers with an x between them (C2A006).
    """
    parts = text.lower().split("x")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(
            "C2A006", f"{option} {text} is not positive integers with an x between them", "Write 14x14, say."
        )
    return tuple(int(part) for part in parts)
