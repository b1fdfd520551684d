"""Real files that ship inside packages: read by path, never imported, never downloaded."""

from importlib.util import find_spec
from pathlib import Path

import skimage.data
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate


def packaged(package: str, path: str) -> Path:
    """The location of `path` inside an installed package, whose own code does not run."""
    return Path(find_spec(package).submodule_search_locations[0], path)


def load_packaged(network: nn.Module, package: str, path: str) -> nn.Module:
    """`network` in eval mode with the packaged state dict, whose keys and shapes must all match."""
    network.load_state_dict(torch.load(packaged(package, path), weights_only=True))
    return network.eval()


def as_batch(pixels) -> Tensor:
    """A (1, channel, row, column) float32 batch, 0 to 255, of a (row, column, channel) picture."""
    return torch.from_numpy(pixels).permute(2, 0, 1)[None].float()


def photograph(name: str) -> Tensor:
    """The picture of that name in `skimage.data`, as `as_batch` gives it."""
    return as_batch(getattr(skimage.data, name)())


def resized(image: Tensor, *sides: int) -> Tensor:
    """`image` on a coarser grid, each pixel the mean of those that it covers."""
    return interpolate(image, sides, mode="area")
