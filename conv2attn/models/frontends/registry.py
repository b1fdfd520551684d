"""The registry of rules that read positions from known layers, by class name."""

from typing import Any

from torch import Tensor, nn

from conv2attn.models.positions.module_places import rule_decorator
from conv2attn.models.positions.position_scores import PositionAttention, Unread

ENCODERS: dict[str, Any] = {}
"""Rules for whole encoders: the first attention layer, and its attention by absolute position."""
RELATIVE: dict[str, Any] = {}
"""Rules for layers: attention by a term of relative position, with `q . k` held at zero."""
first_layer = rule_decorator(ENCODERS)
relative = rule_decorator(RELATIVE)
First = tuple[nn.Module, PositionAttention | Unread]
"""The first attention layer of an encoder, and its attention by position."""


def query_and_key_layers(weight: Tensor, bias: Tensor | None) -> list[nn.Linear]:
    """The query and key layers of one matrix for queries, keys and values."""
    layers = []
    for chunk in range(2):
        layer = nn.Linear(weight.shape[1], weight.shape[0] // 3, bias=bias is not None, device="meta")
        layer.weight = nn.Parameter(weight.detach().chunk(3)[chunk])
        if bias is not None:
            layer.bias = nn.Parameter(bias.detach().chunk(3)[chunk])
        layers.append(layer)
    return layers


def leading_positions_of(positions: Tensor, pixels: int, prefix: int) -> Tensor:
    """The positions of leading tokens: the first of the table, or zeros where it holds those of the pixels alone."""
    leading_positions = positions[: len(positions) - pixels]
    return leading_positions if len(leading_positions) == prefix else positions.new_zeros(prefix, positions.shape[1])
