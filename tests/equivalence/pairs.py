"""Many pairs of layers certified at once: an export of the graph costs more than all that is asked of a layer."""

import copy

import torch
from torch import nn

from conv2attn.equivalence import certify


class Side(nn.Module):
    """Layers that run beside each other, each on an image of its own."""

    def __init__(self, layers, images):
        super().__init__()
        self.layers, self.images = nn.ModuleList(layers), images

    def forward(self, image):
        pairs = zip(self.layers, self.images, strict=True)
        return [layer(named(each, number)) for number, (layer, each) in enumerate(pairs)]


def named(image, number):
    """The image, as what no other layer reads."""
    return image.roll(number, -1).roll(-number, -1)


def images_for(layer, sides=(9, 8, 7)):
    """An image of unequal sides for a layer, within +-1."""
    channels, axes = (
        (layer.d_in, layer.dimensions) if hasattr(layer, "d_in") else (layer.in_channels, len(layer.kernel_size))
    )
    shape = (1, channels, *sides[:axes])
    return (torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 2 - 1).to(next(layer.parameters()).dtype)


def once(side):
    """Layers, those that come again as copies, so that each has a row."""
    return [each if each not in side[:place] else copy.deepcopy(each) for place, each in enumerate(side)]


def rows_of(pairs):
    """The row of each pair, by the names of the pairs, which are (original, converted) or have an image as well."""
    made = {name: pair if len(pair) == 3 else (*pair, images_for(pair[0])) for name, pair in pairs.items()}
    first, second, images = zip(*made.values(), strict=True)
    first, second = once(first), once(second)
    report = certify(Side(first, images), Side(second, images), images=torch.zeros(1, 1, 4, 5))
    found = {row.name: row for row in report.rows}
    return {name: found[f"layers.{number}"] for number, name in enumerate(made)}


def row_of(original, converted, image=None):
    """The row of one pair."""
    return rows_of({"": (original, converted, images_for(original) if image is None else image)})[""]


def convolution(kind=nn.Conv2d, channels=(4, 6), kernel=(2, 3), dtype=torch.float32, **options):
    """A convolution with seeded weights."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind(*channels, kernel, **{"padding": 1, **options}).to(dtype)


def layer(*channels, seed=0, **options):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Conv2d(*(channels or (4, 4)), 3, **{"padding": 1, **options})
