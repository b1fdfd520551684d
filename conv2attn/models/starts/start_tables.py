"""Heads that begin as exact quadratic shifts, in layers with a table of relative biases (Swin, BEiT)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.errors import UnsupportedError
from conv2attn.models.capture import capture
from conv2attn.models.starts import kernel
from conv2attn.models.starts.parts import StartLayer
from conv2attn.models.starts.start_report import StartedHead, started_heads

TABLE = "relative_position_bias_table"
CLASS = -10.0
"""The score of a class token for a query whose target has 0: less than 1e-4 of its attention if that is on the grid."""
Offsets = Mapping[str, Sequence[tuple[int, ...]]]


def tables_of(network: nn.Module, layers: Mapping[str, StartLayer]) -> dict[str, Any]:
    """The modules with a table of biases for each displacement, (displacements, heads), by the layer that adds it.

    After the displacements BEiT's tables have three rows, for a class token as query, as key, and as both.

    Raises:
        UnsupportedError: several layers add the same table, so that their heads cannot take offsets apart (C2A604).
    """
    modules: dict[str, Any] = {}
    for name, part in network.named_modules():
        if isinstance(table := getattr(part, TABLE, None), Tensor):
            around = name if name in layers else name.rpartition(".")[0]
            layer_names = [each for each in layers if f"{each}.".startswith(f"{around}." if around else "")]
            if len(layer_names) > 1 or any(each in modules for each in layer_names):
                raise UnsupportedError(
                    "C2A604",
                    f"{name}: {len(layer_names)} layers add the same table of biases",
                    "Give each layer a table of its own, or take another network.",
                )
            if layer_names and len(table) - math.prod(2 * side - 1 for side in sides_of_table(part)) in (0, 3):
                modules[layer_names[0]] = part
    return modules


def sides_of_table(part: Any) -> tuple[int, ...]:
    """The sides of the window whose displacements a table has."""
    window = getattr(part, "window_size", None)
    side = (math.isqrt(len(getattr(part, TABLE))) + 1) // 2  # torchvision's MaxViT does not say it
    return tuple(window) if isinstance(window, Sequence) else (side, side)


def start_tables(
    network: nn.Module,
    inputs: Any,
    tables: Mapping[str, Any],
    layers: Mapping[str, StartLayer],
    head_offsets: Offsets,
    alpha: float,
) -> list[StartedHead]:
    """Sets each bias to `-alpha |displacement - offset|^2`, and queries to 0, so that content begins at nothing.

    Returns:
        The attention of each head in the first window, which no mask cuts, beside the quadratic head's.
    Raises:
        UnsupportedError: they differ by more than rounding (C2A604).
    """
    for name, holder in tables.items():
        sides, table = sides_of_table(holder), getattr(holder, TABLE).detach()
        displacements = torch.tensor(sides) - 1 - kernel.grid_positions([2 * side - 1 for side in sides])  # key - query
        for head, offset in enumerate(head_offsets[name]):
            distances = displacements - torch.tensor(offset)
            table[: len(distances), head] = (-alpha * distances.square().sum(-1)).to(table)
        if len(table) > len(displacements):
            table[-2] = CLASS
        layers[name].query.zero_()
        for bias in layers[name].biases[:1]:
            bias.zero_()
    attention, rows = capture(network, inputs), list[StartedHead]()
    for name, holder in tables.items():
        sides = sides_of_table(holder)
        leading = int(len(getattr(holder, TABLE)) > math.prod(2 * side - 1 for side in sides))
        scores = [kernel.quadratic(sides, offset, alpha) for offset in head_offsets[name]]
        expected = [nn.functional.pad(each, (leading, 0), value=CLASS).softmax(-1)[None] for each in scores]
        first_window = attention[name][:1] if isinstance(attention[name], Tensor) else attention[name]
        rows += started_heads(name, first_window, head_offsets[name], alpha, sides, expected)
    return rows
