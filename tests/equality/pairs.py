"""Pairs of layers, whose certificate is one row, and networks of a few parts and code on them."""

import torch
from torch import Tensor, nn

from conv2attn.equality.asked import Asked, given_specimen
from conv2attn.equality.calls import seeded
from conv2attn.equality.comparison import Comparison
from conv2attn.equality.layers.layer_pairs import read_pairs


def images_for(layer, sides=(9, 8, 7)):
    """An image of unequal sides for a layer, within +-1."""
    channels, axes = (
        (layer.d_in, layer.dimensions) if hasattr(layer, "d_in") else (layer.in_channels, len(layer.kernel_size))
    )
    shape = (1, channels, *sides[:axes])
    return (torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 2 - 1).to(next(layer.parameters()).dtype)


class Rows(dict):
    """The rows of pairs by name, each certified when it is first looked up: a day's tests look up a quarter."""

    def __init__(self, pairs):
        super().__init__()
        self.pairs = pairs

    def __missing__(self, name):
        self[name] = row_of(*self.pairs[name])
        return self[name]


def rows_of(pairs):
    """The row of each pair, by the names of the pairs, which are (original, converted) or have an image as well."""
    return {name: row_of(*pair) for name, pair in pairs.items()}


def row_of(original, converted, image=None):
    """The row of one pair, as in its certificate, for which the networks around the layers are compared as well."""
    pair = original, converted
    specimen = given_specimen(original, [images_for(original) if image is None else image], {})
    asked = Asked(pair, (specimen,), labels=None, modes=(), progress=None, match=None)
    with seeded([specimen.main.device]):
        (row,) = Comparison(asked, specimen, read_pairs(*pair)).rows.values()
    return row


def convolution(kind=nn.Conv2d, channels=(4, 6), kernel=(2, 3), dtype=torch.float32, seed=0, **options):
    """A convolution with seeded weights."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return kind(*channels, kernel, **{"padding": 1, **options}).to(dtype)


def layer(*channels, **options):
    return convolution(channels=channels or (4, 4), kernel=3, **options)


class Net(nn.Module):
    """Parts, and code that gets the network and its inputs."""

    def __init__(self, code, **parts):
        super().__init__()
        self.code = code
        for name, part in parts.items():
            self.register_buffer(name, part) if type(part) is Tensor else setattr(self, name, part)

    def forward(self, *inputs, **named):
        return self.code(self, *inputs, **named)


class After(Net):
    """A seeded convolution, and code that gets the network and what the convolution returns."""

    def __init__(self, code, channels=(3, 4), **parts):
        super().__init__(code, conv=layer(*channels), **parts)

    def forward(self, image):
        return self.code(self, self.conv(image))
