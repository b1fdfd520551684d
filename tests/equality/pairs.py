"""Pairs of layers: a pair has nothing around it, so that no graph is exported, and its certificate is one row."""

from contextlib import contextmanager
from weakref import WeakKeyDictionary

import pytest
import torch
from torch import nn

from conv2attn.equality import certify, matching
from conv2attn.equality.context import graph

GRAPHS = WeakKeyDictionary()


def once(network):
    """A network that no test changes, so that it has one graph for all of them."""
    GRAPHS.setdefault(network, {})
    return network


def exported_once(network, images, **options):
    """The graph of a network; of one given to `once` the graph made before, unless a hook is on all modules."""
    if network not in GRAPHS or nn.modules.module._global_forward_hooks:
        return graph.graph_of(network, images, **options)
    key = tuple(images.shape), images.dtype, *options.items()
    if key not in GRAPHS[network]:
        GRAPHS[network][key] = graph.graph_of(network, images, **options)
    return GRAPHS[network][key]


@contextmanager
def without_graphs():
    """While active, no network has a graph: for what is asked of layers and outputs, which exports take longer than."""

    def graph_of(network, images, **options):
        raise graph.Unexported("not asked for")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "graph_of", graph_of)
        yield


def images_for(layer, sides=(9, 8, 7)):
    """An image of unequal sides for a layer, within +-1."""
    channels, axes = (
        (layer.d_in, layer.dimensions) if hasattr(layer, "d_in") else (layer.in_channels, len(layer.kernel_size))
    )
    shape = (1, channels, *sides[:axes])
    return (torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 2 - 1).to(next(layer.parameters()).dtype)


def rows_of(pairs):
    """The row of each pair, by the names of the pairs, which are (original, converted) or have an image as well."""
    return {name: row_of(*pair) for name, pair in pairs.items()}


def row_of(original, converted, image=None):
    """The row of one pair."""
    (row,) = certify(original, converted, images=images_for(original) if image is None else image).rows
    return row


def convolution(kind=nn.Conv2d, channels=(4, 6), kernel=(2, 3), dtype=torch.float32, **options):
    """A convolution with seeded weights."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind(*channels, kernel, **{"padding": 1, **options}).to(dtype)


def layer(*channels, seed=0, **options):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Conv2d(*(channels or (4, 4)), 3, **{"padding": 1, **options})
