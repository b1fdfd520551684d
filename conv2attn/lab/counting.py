"""Parameters and floating-point operations of a network, counted while it runs on one image."""

import copy
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from conv2attn.layers.attention import EngineName, MultiHeadSelfAttention, set_engine
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


def count_weight_flops(network: nn.Module, input_size: tuple[int, ...]) -> int:
    """Operations of the products with weights alone: attention is free, as the paper counted it."""
    network = copy.deepcopy(network).to("meta")
    for name in attention_layers(network):
        parent, _, child = name.rpartition(".")
        setattr(network.get_submodule(parent), child, WeightProducts(network.get_submodule(name)))
    return count_flops(network, input_size)


class WeightProducts(nn.Module):
    """The products with weights of an attention layer, each of whose heads reads the query's own pixel."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        assert isinstance(layer, MultiHeadSelfAttention)
        self.matrices = [weight for weight in (layer.query, layer.key) if weight is not None]
        self.position_key = layer.position_key
        self.taps = layer.weights.taps().detach()

    def forward(self, image: Tensor) -> Tensor:
        """(batch, d_in, *sides) to (batch, d_out, *sides)."""
        tokens = image.flatten(2)
        projected = [torch.einsum("hdc,bcn->bhdn", weight, tokens) for weight in self.matrices]
        if self.position_key is not None:
            torch.einsum("hdp,bhdn->bhpn", self.position_key, projected[0])
        head_tokens = tokens[:, None].expand(-1, len(self.taps), -1, -1)
        return torch.einsum("hoc,bhcn->bon", self.taps, head_tokens).unflatten(2, image.shape[2:])
