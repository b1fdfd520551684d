"""The rules that read positions off known layers, by the names of their classes: one file a family enters its own."""

from typing import Any

from torch import Tensor, nn

from conv2attn.models.positions.attention import PositionAttention, Unread
from conv2attn.models.positions.places import registering

ENCODERS: dict[str, Any] = {}
"""Rules for whole encoders: the first attention layer, and what it attends to by absolute positions."""
RELATIVE: dict[str, Any] = {}
"""Rules for layers: what one attends to by a term of relative position, with `q . k` held at zero."""
first_layer = registering(ENCODERS)
relative = registering(RELATIVE)
First = tuple[nn.Module, PositionAttention | Unread]
"""The first attention layer of an encoder, and what it attends to."""


def parts(weight: Tensor, bias: Tensor | None) -> list[nn.Linear]:
    """The query and key layers of one matrix for queries, keys and values."""
    layers = []
    for place in range(2):
        layer = nn.Linear(weight.shape[1], weight.shape[0] // 3, bias=bias is not None, device="meta")
        layer.weight = nn.Parameter(weight.detach().chunk(3)[place])
        if bias is not None:
            layer.bias = nn.Parameter(bias.detach().chunk(3)[place])
        layers.append(layer)
    return layers


def others_of(positions: Tensor, pixels: int, prefix: int) -> Tensor:
    """The positions of leading tokens: the first of the table, or zeros where it holds those of the pixels alone."""
    held = positions[: len(positions) - pixels]
    return held if len(held) == prefix else positions.new_zeros(prefix, positions.shape[1])
