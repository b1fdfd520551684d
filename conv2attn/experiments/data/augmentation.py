"""Random crops and mirror images, drawn for a whole batch, whichever part of it a process computes."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F


@final
@dataclass(frozen=True)
class Augmentation:
    """Each image padded with black by `padding` and cropped to its size at random, mirrored with probability 1/2.

    Source: He et al. 2016, Sec. 4.2 (CIFAR-10), which pads by 4.
    """

    padding: int
    mirror: bool

    def __call__(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """The augmented bytes, (images, channels, rows, columns); the draws depend on the number of images alone."""
        count, _, rows, columns = pixels.shape
        mirrored = torch.rand(count, generator=generator) < 0.5
        down, right = torch.randint(2 * self.padding + 1, (2, count), generator=generator)
        if self.mirror:
            pixels = torch.where(mirrored.to(pixels.device)[:, None, None, None], pixels.flip(-1), pixels)
        if not self.padding:
            return pixels
        windows = F.pad(pixels, [self.padding] * 4).unfold(2, rows, 1).unfold(3, columns, 1)
        return windows[torch.arange(count), :, down, right]


def normalised_images(pixels: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Bytes (images, channels, rows, columns) as floats of mean 0 and deviation 1 over the training set."""
    mean, deviation = (each.to(pixels.device)[:, None, None] for each in (mean, deviation))
    return (pixels.float() / 255 - mean) / deviation
