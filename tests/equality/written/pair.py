"""Two ways in which people write one layer: the same parts, and two codes that use them."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from equality.pairs import Net
from torch import Tensor


class Pair(NamedTuple):
    """Args: the shape of an input, both codes, and a function that makes their parts."""

    shape: tuple[int, ...]
    first: Callable[[Any, Tensor], Tensor]
    second: Callable[[Any, Tensor], Tensor]
    parts: Callable[[], dict[str, Any]] = dict


def networks(pair):
    """Both networks, with the same seeded numbers, and an input."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        parts = pair.parts()
        images = torch.randn(pair.shape)
    return *(Net(code, **copy.deepcopy(parts)).eval() for code in (pair.first, pair.second)), images


def changed(network):
    """A copy with one number of its first part changed, or, where it has no numbers, with its input scaled."""
    network = copy.deepcopy(network)
    for numbers in network.state_dict().values():
        if numbers.is_floating_point():
            numbers.view(-1)[0] += 0.125
            return network
    code = network.code
    network.code = lambda parts, x: code(parts, x * 1.125)
    return network
