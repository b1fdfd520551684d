"""A data set in memory: bytes and labels of training and test images, their augmentation, and accuracy on them."""

import hashlib
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from conv2attn.errors import CheckpointError


@final
@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Training and test images with their labels; images of one axis are lines.

    Args:
        name: name of the data set.
        pixels, test_pixels: bytes, (images, channels, *sides).
        labels, test_labels: int64, (images).
        classes: the names of the classes.
        mirrors: whether mirroring an image keeps its class.
    Raises:
        CheckpointError: a part is empty, or the parts do not fit together (C2A303).
    """

    name: str
    pixels: Tensor
    labels: Tensor
    test_pixels: Tensor
    test_labels: Tensor
    classes: tuple[str, ...]
    mirrors: bool = True

    def __post_init__(self) -> None:
        for part, pixels, labels in (
            ("training", self.pixels, self.labels),
            ("test", self.test_pixels, self.test_labels),
        ):
            if not len(pixels) or len(pixels) != len(labels) or pixels.shape[1:] != self.pixels.shape[1:]:
                mismatch = f"{part} images {tuple(pixels.shape)} with {len(labels)} labels"
                raise CheckpointError("C2A303", f"{self.name}: {mismatch}", "Check the files of the data set.")
            if not 0 <= int(labels.min()) <= int(labels.max()) < len(self.classes):
                raise CheckpointError(
                    "C2A303",
                    f"{self.name}: a {part} label is none of {len(self.classes)} classes",
                    "Name as many classes as there are labels.",
                )

    @property
    def shape(self) -> tuple[int, ...]:
        """(channels, *sides) of an image."""
        return tuple(self.pixels.shape[1:])

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each channel over the training images, as shares of 255: (channels)."""
        # Histograms of bytes: no copy of the pixels as floats, which would take four times their memory.
        counts = torch.stack([torch.bincount(p.flatten(), minlength=256) for p in self.pixels.unbind(1)]).double()
        share, values = counts / counts.sum(1, keepdim=True), torch.arange(256, dtype=torch.float64) / 255
        mean = share @ values
        deviation = (share @ values.square() - mean.square()).clamp(min=0).sqrt()
        return mean.float(), torch.where(deviation > 0, deviation, 1.0).float()

    def digest(self) -> str:
        """A hash of all pixels and labels."""
        parts = (self.pixels, self.labels, self.test_pixels, self.test_labels)
        digest = hashlib.sha256()
        for part in parts:
            digest.update(repr(tuple(part.shape)).encode())
            digest.update(part.contiguous().numpy().tobytes())
        return digest.hexdigest()

    def first(self, images: int | None, test_images: int | None = None) -> "LabelledImages":
        """This data set, restricted to its first training and test images."""
        training, test = slice(images), slice(test_images)
        parts = (self.pixels[training], self.labels[training], self.test_pixels[test], self.test_labels[test])
        return LabelledImages(self.name, *parts, self.classes, self.mirrors)


@final
@dataclass(frozen=True)
class Augmentation:
    """Each image padded with black by `padding` and cropped to its size at random, mirrored with probability 1/2.

    Source: He et al. 2016, Sec. 4.2 (CIFAR-10), which pads by 4.
    """

    padding: int
    mirror: bool

    def __call__(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """The augmented bytes, (images, channels, *sides); the draws depend only on the numbers of images and axes."""
        count, axes = len(pixels), pixels.ndim - 2
        mirrored = torch.rand(count, generator=generator) < 0.5
        moved = torch.randint(2 * self.padding + 1, (axes, count), generator=generator)
        if self.mirror:
            pixels = torch.where(mirrored.to(pixels.device).view(-1, *[1] * (axes + 1)), pixels.flip(-1), pixels)
        if not self.padding:
            return pixels
        windows = F.pad(pixels, [self.padding] * (2 * axes))
        for axis, side in enumerate(pixels.shape[2:], 2):
            windows = windows.unfold(axis, side, 1)
        return windows[torch.arange(count), :, *moved]


def normalised_images(pixels: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Bytes (images, channels, *sides) as floats of mean 0 and deviation 1 over the training set."""
    mean, deviation = (each.to(pixels.device).view(-1, *[1] * (pixels.ndim - 2)) for each in (mean, deviation))
    return (pixels.float() / 255 - mean) / deviation


@torch.no_grad()
def accuracy(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of images whose largest logit is their label's."""
    right = [network(part).argmax(1) == truth for part, truth in zip(images.split(250), labels.split(250), strict=True)]
    return torch.cat(right).double().mean().item()
