"""The trained networks and labelled images that come with this project, for examples without a download."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from conv2attn.errors import CheckpointError
from conv2attn.files import load

MEAN, DEVIATION = 0.2860, 0.3530
EXAMPLE_FOLDERS = (Path(__file__).parent / "examples", Path(__file__).parents[1] / "examples")
"""The folders of the example networks in an installed wheel and in a checkout."""
SIDE = 56


class Demo(NamedTuple):
    """A state dict's path, prepared images, their labels, and the names of the classes."""

    model: Path
    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]


def prepare(pixels: Tensor) -> Tensor:
    """Fashion-MNIST's grey images, prepared as in the training of the network in `examples/`.

    Args:
        pixels: bytes of shape (images, 28, 28).
    Returns:
        Floats of shape (images, 3, 56, 56): mean 0 and deviation 1 over the training set, doubled in size
        bilinearly, the grey in each of three channels.
    """
    return resized_images(pixels, 3, SIDE, SIDE)


def resized_images(pixels: Tensor, channels: int, *sides: int) -> Tensor:
    """Grey images with mean 0 and deviation 1 over the training set, resized bilinearly, the grey in each channel."""
    grey = (pixels.float() / 255 - MEAN) / DEVIATION
    return interpolate(grey[:, None], size=sides, mode="bilinear").expand(-1, channels, -1, -1).contiguous()


def example_image(channels: int, *sides: int) -> Tensor:
    """The first example image, (1, channels, rows, columns), normalised for the example networks."""
    with np.load(example_folder() / "images.npz", allow_pickle=False) as arrays:
        return resized_images(torch.from_numpy(arrays["pixels"][:1]), channels, *sides)


def resnet18() -> nn.Module:
    """A ResNet-18 trained on Fashion-MNIST, in evaluation mode; `demo_files().images` are inputs for it.

        >>> from conv2attn import examples
        >>> tuple(examples.resnet18()(examples.demo_files().images).shape)
        (10, 10)

    Raises:
        CheckpointError: neither a checkout nor an installed package holds the file (C2A301).
    """
    return load(example_folder() / "resnet18.pt")


def demo_files() -> Demo:
    """The first test image of each class, and the ResNet-18 that `examples/train_resnet18.py` trained.

    Raises:
        CheckpointError: neither a checkout nor an installed package holds the files.
    """
    folder = example_folder()
    with np.load(folder / "images.npz", allow_pickle=False) as arrays:
        pixels, labels, classes = (arrays[name] for name in ("pixels", "labels", "classes"))
    images = prepare(torch.from_numpy(pixels))
    return Demo(folder / "resnet18.pt", images, torch.from_numpy(labels), tuple(map(str, classes)))


def example_folder() -> Path:
    """The folder of the example networks and images, of a checkout or of an installed wheel.

    Raises:
        CheckpointError: neither holds the files (C2A301).
    """
    for folder in EXAMPLE_FOLDERS:
        if (folder / "resnet18.pt").is_file():
            return folder
    raise CheckpointError(
        "C2A301", f"no examples/resnet18.pt in {Path(__file__).parent} or beside it", "Install the package again."
    )
