"""Images in files: a .npy array, or a tensor among those that torch.save wrote."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from conv2attn.checkpoints.reading import read
from conv2attn.errors import CheckpointError

REMEDY = "Save {'images': tensor} by torch.save, or an array (N, C, H, W) by numpy.save."


def read_images(path: str) -> Tensor:
    """A batch of images from a .npy array, or from a tensor file: its "images", or the only images in it.

    Raises:
        CheckpointError: it is missing (C2A301) or damaged (C2A302), or holds no images or more than one batch (C2A303).
    """
    images = array_in(path) if Path(path).suffix == ".npy" else tensor_in(path)
    if images.ndim < 3 or not images.numel() or images.is_complex():
        shape = "x".join(map(str, images.shape))
        raise CheckpointError("C2A303", f"{path} holds {shape} numbers of {images.dtype}, not images", REMEDY)
    return images


def array_in(path: str) -> Tensor:
    """The array in a .npy file."""
    if not Path(path).is_file():
        raise CheckpointError("C2A301", f"{path} does not exist")
    try:
        return torch.from_numpy(np.load(path, allow_pickle=False))
    except (OSError, ValueError, TypeError, EOFError, MemoryError) as error:
        raise CheckpointError("C2A303", f"{path} is not an array of images", REMEDY) from error


def tensor_in(path: str) -> Tensor:
    """What is called images in a file of tensors, or the only tensor that could be."""
    try:
        content = read(path)
    except CheckpointError as error:
        raise CheckpointError(error.code, error.found, REMEDY if error.code == "C2A303" else error.remedy) from error
    found = [content["images"]] if "images" in content else list(content.values())
    found = [item for item in found if isinstance(item, Tensor) and item.ndim > 2]
    if len(found) != 1:
        told = f"{len(found)} tensors that could be images, none of them called so" if found else "no images"
        raise CheckpointError("C2A303", f"{path} holds {told}", REMEDY)
    return found[0]
