"""A data set in memory: bytes and labels of training and test images."""

import hashlib
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from conv2attn.errors import CheckpointError


@final
@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Training and test images with their labels.

    Args:
        name: of the data set.
        pixels, test_pixels: bytes, (images, channels, rows, columns).
        labels, test_labels: int64, (images).
        classes: what each label means.
        mirrors: whether the mirror image of an image is of its class too.
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
    def shape(self) -> tuple[int, int, int]:
        """(channels, rows, columns) of an image."""
        channels, rows, columns = self.pixels.shape[1:]
        return channels, rows, columns

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each channel over the training images, as shares of 255: (channels)."""
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
        """This data set with only its first training and test images."""
        training, test = slice(images), slice(test_images)
        parts = (self.pixels[training], self.labels[training], self.test_pixels[test], self.test_labels[test])
        return LabelledImages(self.name, *parts, self.classes, self.mirrors)
