"""Images in files: pictures, folders of them, and arrays, prepared as a network takes them."""

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from conv2attn.checkpoints import kinds
from conv2attn.checkpoints.kinds import kind_of_path
from conv2attn.checkpoints.pixels import Preparation, batch_of, normalised, preparation
from conv2attn.checkpoints.reading import read
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.report import counted

SUFFIXES = (".png", ".jpg", ".jpeg")
NAMES = ("images", "pixels")
REMEDY = "Pass a PNG or JPEG file, a folder of them, an array (N, C, H, W) in .npy or .npz, or {'images': tensor}."


def images(
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
    place, asked = Path(path), Preparation.asked(mean, std)
    if place.is_dir():
        files = sorted(each for each in place.rglob("*") if each.suffix.lower() in SUFFIXES)
        if not files:
            raise CheckpointError("C2A303", f"{path} holds no PNG or JPEG files", REMEDY)
        return batch_of([picture(each) for each in files], place.name, preparation(network, size, asked))
    if place.suffix.lower() in SUFFIXES:
        return batch_of([picture(place)], place.name, preparation(network, size, asked))
    held = array_in(path)
    if held.dtype == torch.uint8 and held.numel():
        return batch_of(list(as_pixels(held)), place.name, preparation(network, size, asked))
    if held.ndim < 3 or held.is_complex() or not held.numel():
        shape = "x".join(map(str, held.shape))
        raise CheckpointError("C2A303", f"{path} holds {shape} numbers of {held.dtype}, not images", REMEDY)
    batch, told = normalised(held, asked)
    return batch, f"{counted(len(held), 'image')} of {place.name}{told}"


def picture(path: Path) -> Tensor:
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
        with Image.open(path, formats=("PNG", "JPEG")) as opened:
            if opened.mode.startswith(("I", "F")):
                raise CheckpointError("C2A303", f"{path} has more than 8 bits per channel", REMEDY)
            grey = opened.mode in ("1", "L")
            pixels = np.array(ImageOps.exif_transpose(opened).convert("L" if grey else "RGB"))
    except FileNotFoundError as error:
        raise CheckpointError("C2A301", f"{path} does not exist", "Check the path.") from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise CheckpointError("C2A303", f"{path} is not a whole PNG or JPEG picture", REMEDY) from error
    return torch.from_numpy(pixels)[None] if grey else torch.from_numpy(pixels).movedim(-1, 0)


def as_pixels(held: Tensor) -> Tensor:
    """Bytes (rows, columns), (images, rows, columns), or with 1, 3 or 4 channels last or first, as channels first."""
    if held.shape[-1] in (3, 4) and held.ndim in (3, 4):
        return (held if held.ndim == 4 else held[None]).movedim(-1, 1)[:, :3]
    return held if held.ndim > 3 else held.reshape(-1, 1, *held.shape[-2:])


def array_in(path: str) -> Tensor:
    """The entry named as images in a file of arrays or tensors, or the only one that could be."""
    held = arrays_in(path)
    found = [held[name] for name in NAMES if name in held][:1]
    found = found or [each for each in held.values() if each.ndim > 2 or (each.dtype == torch.uint8 and each.ndim == 2)]
    if len(found) != 1:
        told = f"{len(found)} tensors that could be images, none of them called so" if len(found) > 1 else "no images"
        raise CheckpointError("C2A303", f"{path} holds {told}", REMEDY)
    return found[0]


def arrays_in(path: str) -> dict[str, Tensor]:
    """The arrays or tensors of a file by name.

    Raises:
        CheckpointError: as `images`.
    """
    try:
        if not Path(path).exists() or kind_of_path(Path(path)) is not kinds.ARRAYS:
            return {name: each for name, each in read(path).items() if isinstance(each, Tensor)}
        held = np.load(path, allow_pickle=False)
        named = dict(held) if isinstance(held, np.lib.npyio.NpzFile) else {"images": held}
        return {name: torch.from_numpy(each) for name, each in named.items() if each.dtype.kind in "fiubc"}
    except CheckpointError as error:
        raise CheckpointError(error.code, error.found, REMEDY if error.code == "C2A303" else error.remedy) from error
    except (OSError, ValueError, TypeError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise CheckpointError("C2A303", f"{path} is not an array of images", REMEDY) from error
