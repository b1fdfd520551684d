"""Images in files: pictures, folders of them, and arrays, prepared as a network takes them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from conv2attn.checkpoints.arrays import arrays_in
from conv2attn.checkpoints.pixels import Preparation, batch_of_pixels, normalise_pixels, preparation
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.report import counted

SUFFIXES = (".png", ".jpg", ".jpeg")
NAMES = ("images", "pixels")
REMEDY = "Pass a PNG or JPEG file, a folder of them, an array (N, C, H, W) in .npy or .npz, or {'images': tensor}."


def read_images(
    path: str,
    network: nn.Module | None = None,
    *,
    size: Sequence[int] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> tuple[Tensor, str]:
    """The images in a file or folder, (batch, channels, *sides), and what they are and what was done to them in words.

    Pictures, and arrays of bytes, are pixels: they are scaled to 0 to 1, resized to cover the sides that `network`
    takes, cropped at the centre, and normalised. Arrays of floating-point numbers are taken as they are, and normalised
    only by a `mean` and `std` that are passed.

    Args:
        path: a PNG or JPEG file, a folder of them, .npy, .npz, or tensors that torch.save wrote.
        network: whose channels, sides and normalisation are used, where it says them: models of timm and transformers,
            and what was converted from them.
        size: channels and sides, in place of those of the network.
        mean, std: numbers per channel for pixels between 0 and 1, in place of those of the network.
    Raises:
        CheckpointError: it is missing (C2A301) or damaged (C2A302), or holds no images or more than one batch (C2A303).
        UsageError: Pillow is not installed (C2A003), pictures differ in size and no size is known (C2A005), or
            channels do not fit (C2A007).
    """
    place, requested = Path(path), Preparation.requested(mean, std)
    if place.is_dir():
        files = sorted(each for each in place.rglob("*") if each.suffix.lower() in SUFFIXES)
        if not files:
            raise CheckpointError("C2A303", f"{path} holds no PNG or JPEG files", REMEDY)
        return batch_of_pixels(
            [read_picture(each) for each in files], place.name, preparation(network, size, requested)
        )
    if place.suffix.lower() in SUFFIXES:
        return batch_of_pixels([read_picture(place)], place.name, preparation(network, size, requested))
    array = array_in(path)
    if array.dtype == torch.uint8 and array.numel():
        return batch_of_pixels(list(as_pixels(array)), place.name, preparation(network, size, requested))
    if array.ndim < 3 or array.is_complex() or not array.numel():
        shape = "x".join(map(str, array.shape))
        raise CheckpointError("C2A303", f"{path} holds {shape} numbers of {array.dtype}, not images", REMEDY)
    batch, steps = normalise_pixels(array, requested)
    return batch, f"{counted(len(array), 'image')} of {place.name}{steps}"


def read_picture(path: Path) -> Tensor:
    """The pixels of a PNG or JPEG file as bytes, (1 or 3, rows, columns), upright as its camera meant.

    Raises:
        UsageError: Pillow is not installed (C2A003).
        CheckpointError: there is no such file (C2A301), or it is not such a picture (C2A303).
    """
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise UsageError(
            "C2A003", f"{path} is read by Pillow, which is not here", "Install it: pip install pillow."
        ) from error
    try:
        with Image.open(path, formats=("PNG", "JPEG")) as image_file:
            if image_file.mode.startswith(("I", "F")):
                raise CheckpointError("C2A303", f"{path} has more than 8 bits per channel", REMEDY)
            grey = image_file.mode in ("1", "L")
            pixels = np.array(ImageOps.exif_transpose(image_file).convert("L" if grey else "RGB"))
    except FileNotFoundError as error:
        raise CheckpointError("C2A301", f"{path} does not exist", "Check the path.") from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise CheckpointError("C2A303", f"{path} is not a whole PNG or JPEG picture", REMEDY) from error
    return torch.from_numpy(pixels)[None] if grey else torch.from_numpy(pixels).movedim(-1, 0)


def as_pixels(array: Tensor) -> Tensor:
    """Bytes (rows, columns), (images, rows, columns), or with 1, 3 or 4 channels last or first, as channels first."""
    if array.shape[-1] in (3, 4) and array.ndim in (3, 4):
        return (array if array.ndim == 4 else array[None]).movedim(-1, 1)[:, :3]
    return array if array.ndim > 3 else array.reshape(-1, 1, *array.shape[-2:])


def array_in(path: str) -> Tensor:
    """The entry named as images in a file of arrays or tensors, or the only one that could be."""
    arrays = {
        name: torch.from_numpy(array) if isinstance(array, np.ndarray) else array
        for name, array in arrays_in(Path(path), NAMES[0], REMEDY).items()
        if isinstance(array, Tensor) or array.dtype.kind in "fiubc"
    }
    candidates = [arrays[name] for name in NAMES if name in arrays][:1]
    candidates = candidates or [
        each for each in arrays.values() if each.ndim > 2 or (each.dtype == torch.uint8 and each.ndim == 2)
    ]
    if len(candidates) != 1:
        several = f"{len(candidates)} tensors that could be images, none of them called so"
        raise CheckpointError("C2A303", f"{path} holds {several if candidates else 'no images'}", REMEDY)
    return candidates[0]
