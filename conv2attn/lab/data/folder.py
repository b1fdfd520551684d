"""A folder of images: train/CLASS/FILE and test/CLASS/FILE, all of one size."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from conv2attn.errors import CheckpointError
from conv2attn.extras import optional
from conv2attn.lab.data.labelled_images import LabelledImages

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
FOLDER_REMEDY = "Sort the images into train/CLASS/ and test/CLASS/."


def read_folder(path: Path) -> LabelledImages:
    """The images in `path`/train/CLASS and `path`/test/CLASS; grey where every image is, otherwise RGB.

    Raises:
        CheckpointError: no such folders, no images, or images that differ in size or cannot be read (C2A303).
        UsageError: pillow is not installed (C2A003).
    """
    if not (path / "train").is_dir() or not (path / "test").is_dir():
        raise CheckpointError("C2A303", f"{path} has no folders train and test", FOLDER_REMEDY)
    classes = tuple(sorted(folder.name for folder in (path / "train").iterdir() if folder.is_dir()))
    if unknown := sorted({f.name for f in (path / "test").iterdir() if f.is_dir()} - {*classes}):
        raise CheckpointError("C2A303", f"{path}/test/{unknown[0]} has no images in train", FOLDER_REMEDY)
    files_of_part = {part: [*labelled_files(path / part, classes)] for part in ("train", "test")}
    for part, files in files_of_part.items():
        if not files:
            raise CheckpointError("C2A303", f"{path / part} holds no images", FOLDER_REMEDY)
    grey = all(image_mode(file) in ("1", "L") for files in files_of_part.values() for file, _ in files)
    arrays = [read_all([file for file, _ in files], "L" if grey else "RGB") for files in files_of_part.values()]
    labels = [torch.tensor([label for _, label in files]) for files in files_of_part.values()]
    return LabelledImages(path.name, arrays[0], labels[0], arrays[1], labels[1], classes)


def labelled_files(folder: Path, classes: tuple[str, ...]) -> list[tuple[Path, int]]:
    """The image files of each class, sorted, with their labels."""
    return [
        (file, label)
        for label, name in enumerate(classes)
        for file in sorted((folder / name).glob("*"))
        if file.suffix.lower() in IMAGE_SUFFIXES
    ]


def image_mode(file: Path) -> str:
    """Pillow's mode of an image file, such as L for grey."""
    pillow = optional("PIL.Image", "a folder of images")
    try:
        with pillow.open(file) as image:
            return str(image.mode)
    except OSError as error:
        raise CheckpointError("C2A303", f"{file} is not an image ({error})", FOLDER_REMEDY) from error


def read_all(files: list[Path], mode: str) -> Tensor:
    """The pixels of images of one size: bytes (images, channels, rows, columns)."""
    pixels: list[Tensor] = []
    for file in files:
        try:
            with optional("PIL.Image").open(file) as image:
                array = torch.from_numpy(np.array(image.convert(mode)))
        except OSError as error:
            raise CheckpointError("C2A303", f"{file} cannot be read ({error})", "Remove it.") from error
        if pixels and array.shape != pixels[0].shape:
            sizes = ["x".join(map(str, each.shape[:2])) for each in (array, pixels[0])]
            raise CheckpointError("C2A303", f"{file} is {sizes[0]}, and {files[0]} {sizes[1]}", "Resize the images.")
        pixels.append(array)
    stacked = torch.stack(pixels)
    return stacked[:, None] if mode == "L" else stacked.permute(0, 3, 1, 2).contiguous()
