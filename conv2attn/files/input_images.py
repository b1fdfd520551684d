"""Reads images from files (pictures, folders, arrays), prepares them for a network, and describes each step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from conv2attn.errors import CheckpointError, UsageError
from conv2attn.extras import optional
from conv2attn.files.array_files import arrays_in
from conv2attn.files.budget import Budget
from conv2attn.networks.provenance import channels_of, input_size_of, provenance_of, published_size
from conv2attn.networks.specimens import WHOLE, main_input, takes_ids
from conv2attn.report import counted

PICTURE_ENDINGS = (".png", ".jpg", ".jpeg")
IMAGE_ENTRIES = ("images", "pixels")
LUMINANCE = (0.299, 0.587, 0.114)
"""Shares of red, green and blue in grey (ITU-R BT.601)."""
PASS_IMAGES = "Pass a PNG or JPEG file, a folder of them, an array (N, C, H, W) in .npy or .npz, or {'images': tensor}."


def read_images(
    path: str,
    network: nn.Module | None = None,
    *,
    size: Sequence[int] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> tuple[Tensor, str]:
    """The images in a file or folder, (batch, channels, *sides), and a description with the steps of preparation.

    Pictures and arrays of bytes are pixels: they are scaled to 0..1, resized to cover the input sides of `network`,
    cropped at the centre, and normalised. Floating-point arrays are used unchanged, and normalised only by an explicit
    `mean` and `std`; an array of three axes is a single image if its first axis has the channels of the network, and an
    array of one axis is a single wave. Integers of at most two axes are token ids if the network takes ids.

    Args:
        path: a PNG or JPEG file, a folder of them, .npy, .npz, or tensors from torch.save.
        network: its channels, sides and normalisation are used if it states them, as models of timm and transformers
            do, also after conversion.
        size: channels and sides instead of the network's.
        mean, std: numbers per channel for pixels between 0 and 1, instead of the network's.
    Raises:
        CheckpointError: the file is missing (C2A301), damaged (C2A302), or has no images or more than one batch
            (C2A303).
        UsageError: Pillow is not installed (C2A003), pictures differ in size and no size is known (C2A005), or
            channels do not fit (C2A007).
    """
    place, requested = Path(path), Preparation.requested(mean, std)
    if place.is_dir():
        pixels = [read_picture(each) for each in picture_files(place)]
    elif place.suffix.lower() in PICTURE_ENDINGS:
        pixels = [read_picture(place)]
    else:
        array = array_in(path, main_input(network) if network is not None else "")
        if array.dtype in WHOLE and array.ndim in (1, 2) and network is not None and takes_ids(network):
            sequences = array.long() if array.ndim == 2 else array.long()[None]
            return sequences, f"{counted(len(sequences), 'sequence')} of {place.name}"
        pixels = list(as_pixels(array)) if array.dtype == torch.uint8 and array.numel() else []
    if pixels:
        return batch_of_pixels(pixels, place.resolve().name, preparation(network, size, requested))
    if not array.ndim or array.is_complex() or not array.numel():
        shape = "x".join(map(str, array.shape)) or "single"
        raise CheckpointError("C2A303", f"{path} holds {shape} numbers of {array.dtype}, not images", PASS_IMAGES)
    image_size = tuple(size or (size_in(network) if network is not None else ()))
    if array.ndim == 1 or (
        array.ndim == 3 and len(image_size) != 2 and image_size[:1] == (len(array),) != (array.shape[1],)
    ):
        array = array[None]
    batch, steps = normalise_pixels(array, requested)
    return batch, f"{counted(len(array), 'image' if array.ndim > 2 else 'input')} of {place.name}{steps}"


def picture_files(folder: Path) -> list[Path]:
    """The PNG and JPEG files in a folder and below it, in the order in which they are read.

    Raises:
        CheckpointError: there are no such files (C2A303).
    """
    files = sorted(each for each in folder.rglob("*") if each.suffix.lower() in PICTURE_ENDINGS)
    if not files:
        raise CheckpointError("C2A303", f"{folder} holds no PNG or JPEG files", PASS_IMAGES)
    return files


def read_picture(path: Path) -> Tensor:
    """The pixels of a PNG or JPEG file as bytes, (1 or 3, rows, columns), rotated upright by its EXIF orientation.

    Raises:
        UsageError: Pillow is not installed (C2A003).
        CheckpointError: the file is missing (C2A301), or is not such a picture (C2A303).
    """
    pillow, operations = (optional(f"PIL.{part}", f"reading {path}") for part in ("Image", "ImageOps"))
    try:
        with pillow.open(path, formats=("PNG", "JPEG")) as image_file:
            if image_file.mode.startswith(("I", "F")):
                raise CheckpointError("C2A303", f"{path} has more than 8 bits per channel", PASS_IMAGES)
            Budget.of(path).draw(4 * image_file.width * image_file.height, "its pixels")
            grey = image_file.mode in ("1", "L")
            pixels = np.array(operations.exif_transpose(image_file).convert("L" if grey else "RGB"))
    except FileNotFoundError as error:
        raise CheckpointError("C2A301", f"{path} does not exist", "Check the path.") from error
    except CheckpointError:
        raise
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
        raise CheckpointError("C2A303", f"{path} is not a whole PNG or JPEG picture", PASS_IMAGES) from error
    return torch.from_numpy(pixels)[None] if grey else torch.from_numpy(pixels).movedim(-1, 0)


def as_pixels(array: Tensor) -> Tensor:
    """Bytes (rows, columns), (images, rows, columns), or with 1, 3 or 4 channels last or first, as channels first."""
    if array.shape[-1] in (3, 4) and array.ndim in (3, 4):
        return (array if array.ndim == 4 else array[None]).movedim(-1, 1)[:, :3]
    return array if array.ndim > 3 else array.reshape(-1, 1, *array.shape[-2:])


def array_in(path: str, name: str = "") -> Tensor:
    """The entry for the argument `name`, or for images, in a file of arrays or tensors; otherwise the only entry."""
    arrays = {
        name: torch.from_numpy(array) if isinstance(array, np.ndarray) else array
        for name, array in arrays_in(Path(path), IMAGE_ENTRIES[0], PASS_IMAGES).items()
        if isinstance(array, Tensor) or array.dtype.kind in "fiubc"
    }
    candidates = [arrays[each] for each in (name, *IMAGE_ENTRIES) if each in arrays][:1] or list(arrays.values())
    if len(candidates) != 1:
        several = f"{len(candidates)} tensors that could be images, none with that name"
        raise CheckpointError("C2A303", f"{path} holds {several if candidates else 'no images'}", PASS_IMAGES)
    # Images are often stored with labels or class names, which have one axis. An entry with more axes could be another
    # input of the network.
    others = [key for key, each in arrays.items() if each is not candidates[0] and each.ndim > 1]
    if others:
        reason = f"{path} has {others[0][:60]!r} besides the inputs of the network"
        raise CheckpointError("C2A303", reason, "Leave it out, or name all entries as arguments of the network.")
    return candidates[0]


@final
@dataclass(frozen=True)
class Preparation:
    """The preparation of pixels for a network, as far as known.

    Args:
        size: channels and sides; only channels if sides are unknown; empty if both are.
        mean, std: for pixels between 0 and 1, one number per channel or one for all; both or neither.
        source: the origin of mean and std.
        crop: the share of a resized picture's sides kept by the centre crop (timm's crop_pct).
        whose: the source of the size in words, if it is neither the user nor the network itself.
    """

    size: tuple[int, ...] = ()
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    source: str = ""
    crop: float = 1.0
    whose: str = ""

    @staticmethod
    def requested(mean: Sequence[float] | None, std: Sequence[float] | None) -> "Preparation":
        """The normalisation requested by the user.

        Raises:
            UsageError: one of the two is missing (C2A004), or a deviation is not positive (C2A001).
        """
        if (mean is None) != (std is None):
            raise UsageError(
                "C2A004", "a mean without a deviation, or a deviation without a mean", "Pass --mean and --std."
            )
        if mean is None or std is None:
            return Preparation()
        if not all(0 < each < float("inf") for each in std):
            raise UsageError("C2A001", f"--std {std} is not positive", "Pass the deviation of pixels from 0 to 1.")
        return Preparation((), tuple(mean), tuple(std), "--mean and --std")


def preparation(network: nn.Module | None, size: Sequence[int] | None, requested: Preparation) -> Preparation:
    """The preparation of images for a network: as requested, otherwise as stated by its provenance."""
    source = provenance_of(network) if network is not None else None
    sizes = tuple(size or (size_in(network) if network is not None else ()))
    whose = published_size(network) if network is not None and not size else ""
    if requested.mean is None and source is not None and source.mean and source.std:
        return Preparation(sizes, source.mean, source.std, source.architecture, source.crop or 1.0, whose)
    return replace(requested, size=sizes, whose=whose, crop=source.crop or 1.0 if source is not None else 1.0)


def size_in(network: nn.Module) -> tuple[int, ...]:
    """Channels and sides of the images of a network, else the channels that its first layer reads."""
    return input_size_of(network) or tuple(filter(None, [channels_of(network)]))


def batch_of_pixels(pixels: Sequence[Tensor], name: str, how: Preparation) -> tuple[Tensor, str]:
    """Bytes (channels, rows, columns) of each picture as one batch, and a description of the steps.

    Raises:
        UsageError: channels do not fit, or the pictures differ in size and `how` has no sides (C2A005).
    """
    sides = how.size[1:]
    channels = how.size[0] if how.size else max(len(each) for each in pixels)
    resized = [resize_to(with_channels(each / 255, channels, name), sides, how.crop) for each in pixels]
    if other_sizes := {each.shape[1:] for each in resized} - {resized[0].shape[1:]}:
        sizes = " and ".join("x".join(map(str, each)) for each in (resized[0].shape[1:], *other_sizes)[:2])
        remedy = "Pass the size with --input-size CHANNELSxHxW."
        raise UsageError("C2A005", f"the pictures in {name} are {sizes}, and no size is known", remedy)
    words = f"{counted(len(pixels), 'image')} of {name}"
    if any(each.shape[1:] != resized[0].shape[1:] for each in pixels):
        words += f" resized to {'x'.join(map(str, resized[0].shape[1:]))}{how.whose}"
        words += f", the central {how.crop:.1%} of each kept" if how.crop != 1 else ""
    batch, normalisation = normalise_pixels(torch.stack(resized), how)
    return batch, words + (normalisation or ", pixels 0..1 (no mean and std known: --mean, --std)")


def with_channels(image: Tensor, channels: int, name: str) -> Tensor:
    """A grey or colour image (1 or 3, rows, columns) with this number of channels.

    Raises:
        UsageError: the network takes neither one nor three channels (C2A007).
    """
    if len(image) == channels:
        return image
    if len(image) == 3 and channels == 1:
        return (image * torch.tensor(LUMINANCE).reshape(3, 1, 1)).sum(0, keepdim=True)
    if len(image) != 1 or channels != 3:
        reason = f"the images in {name} have {counted(len(image), 'channel')}, and the network takes {channels}"
        raise UsageError("C2A007", reason, "Pass a floating-point array (N, C, H, W).")
    return image.expand(3, -1, -1)


def resize_to(image: Tensor, sides: Sequence[int], crop: float = 1.0) -> Tensor:
    """An image (channels, rows, columns) resized bilinearly to at least sides / crop, then cropped to `sides` at the
    centre, as timm does."""
    if len(sides) != 2 or tuple(image.shape[1:]) == tuple(sides):
        return image
    ratio = max(side / old for side, old in zip(sides, image.shape[1:], strict=True))
    covering = [max(side, round(ratio * old / crop)) for side, old in zip(sides, image.shape[1:], strict=True)]
    resized = interpolate(image[None], covering, mode="bilinear", antialias=True)[0]
    top, left = ((big - side) // 2 for big, side in zip(covering, sides, strict=True))
    return resized[:, top : top + sides[0], left : left + sides[1]]


def normalise_pixels(batch: Tensor, how: Preparation) -> tuple[Tensor, str]:
    """A batch minus the mean, divided by the deviation of its channels, and a description; unchanged without a mean.

    Raises:
        UsageError: the numbers do not fit the channels (C2A007).
    """
    if how.mean is None or how.std is None:
        return batch, ""
    if not all(len(each) in (1, batch.shape[1]) for each in (how.mean, how.std)):
        reason = f"mean and deviation have {len(how.mean)} and {len(how.std)} numbers"
        raise UsageError("C2A007", f"{reason}, the images {batch.shape[1]} channels", "Pass one number per channel.")
    batch = batch if batch.is_floating_point() else batch.float()
    mean, std = (torch.tensor(each).to(batch).reshape(1, -1, *[1] * (batch.ndim - 2)) for each in (how.mean, how.std))
    return (batch - mean) / std, f", normalised as {how.source} {'say' if 'and' in how.source else 'says'}"
