"""Heads that begin as shifts by tables of biases, which each layer adds to its scores.

Swin's `relative_position_bias_table` for windows of 7x7 tokens has 169 rows, one per displacement key - query from
(6, 6) to (-6, -6), and a column per head. BEiT's has three more rows: a class token as query, as key, and as both.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.errors import UnsupportedError
from conv2attn.networks.starts import kernel
from conv2attn.networks.starts.parts import StartLayer
from conv2attn.networks.starts.shifts import Shifts
from conv2attn.networks.starts.start_report import StartedHead

TABLE = "relative_position_bias_table"
CLASS = -10.0
"""The score of a class token for a query whose target has 0: less than 1e-4 of its attention if that is on the grid."""


def bias_tables(network: nn.Module, layers: Mapping[str, StartLayer]) -> dict[str, Any]:
    """The modules with a table of biases for each displacement in a window, by the layer that adds it.

    Raises:
        UnsupportedError: several layers add the same table, so that their heads cannot take offsets apart, or the
            windows of layers differ in size (C2A604).
    """
    tables: dict[str, Any] = {}
    for name, part in network.named_modules():
        if isinstance(table := getattr(part, TABLE, None), Tensor) and hasattr(part, "window_size"):
            around = name if name in layers else name.rpartition(".")[0]
            users = [each for each in layers if f"{each}.".startswith(f"{around}." if around else "")]
            if len(users) > 1 or not tables.keys().isdisjoint(users):
                reason = f"{name}: {len(users)} layers add the same table of biases"
                remedy = "Give each layer a table of its own, or take another network."
                raise UnsupportedError("C2A604", reason, remedy)
            if users and len(table) - math.prod(2 * side - 1 for side in part.window_size) in (0, 3):
                tables[users[0]] = part
    windows = {tuple(part.window_size) for part in tables.values()}
    if len(windows) > 1:
        reason = f"its windows have {len(windows)} sizes"
        remedy = "Pass a larger image if the last windows are cut, or take another network."
        raise UnsupportedError("C2A604", reason, remedy)
    return tables


def start_on_biases(shifts: Shifts, tables: Mapping[str, Any]) -> tuple[StartedHead, ...]:
    """Sets each bias to `-alpha |displacement - offset|^2`, and queries to 0, so that content begins at nothing.

    Returns:
        A row for each head in the first window, which no mask cuts.
    Raises:
        UnsupportedError: its attention differs from the formula by more than rounding (C2A604).
    """
    places = kernel.grid_of([2 * side - 1 for side in shifts.sides]).key_coordinates().double()
    displacements = torch.tensor(shifts.sides) - 1 - places  # key - query
    for name, holder in tables.items():
        table, layer = getattr(holder, TABLE).detach(), shifts.trial.layers[name]
        for head, offset in enumerate(shifts.offsets[name]):
            distances = (displacements - torch.tensor(offset)).square().sum(-1)
            table[: len(distances), head] = (-shifts.alpha * distances).to(table)
        if len(table) > len(displacements):
            table[-2] = CLASS
        for part in (layer.query, *layer.biases[:1]):
            part.zero_()
    return shifts.rows(lambda _, offset: kernel.quadratic(shifts.sides, offset, shifts.alpha)[None], CLASS, images=1)
