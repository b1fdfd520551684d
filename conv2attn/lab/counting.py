"""Parameters and floating-point operations of a network, counted while it runs on one image."""

import copy
from typing import cast

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from conv2attn.layers.attention import EngineName, set_engine
from conv2attn.networks import attention_layers


def count_parameters(network: nn.Module) -> int:
    """Number of trained numbers."""
    return sum(parameter.numel() for parameter in network.parameters())


@torch.no_grad()
def count_flops(network: nn.Module, input_size: tuple[int, ...], engine: str = "dense") -> int:
    """Operations of the products that an image takes, a multiplication and an addition counted as two.

    Products of weights and products of attention count alike, as `engine` does them; sums, exponentials and
    normalisations do not count.

    Source: torch.utils.flop_counter.
    """
    device = "meta" if engine == "dense" else "cpu"  # whose products are the same whatever the numbers are
    network = copy.deepcopy(network).eval().to(device)
    if attention_layers(network):
        set_engine(network, cast(EngineName, engine))
    image = torch.zeros(1, *input_size, dtype=next(network.parameters()).dtype, device=device)
    network(image)  # measures the device, by products that are not the network's
    with FlopCounterMode(display=False) as counter:
        network(image)
    return counter.get_total_flops()
