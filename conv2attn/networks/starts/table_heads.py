"""Heads that begin as shifts by a table that stays or that each layer adds: of positions, or of relative biases.

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


def start_on_positions(shifts: Shifts) -> tuple[tuple[StartedHead, ...], tuple[str, ...]]:
    """Sets queries and keys so that `q . k` is nearest to `-alpha |k - q - offset|^2` on the mean tokens of noise.

    Keys give `(k, |k|^2)` and queries `(2 alpha (q + offset), -alpha)`: axes + 1 numbers of each head. Where the mean
    tokens have full row rank both are met exactly; content that arrives with them is read as well.

    Returns:
        A row for each head, with a bound that is measured, and for each layer a sentence with the largest error of such
        a score on the mean tokens, as a share of their spread.
    Raises:
        UnsupportedError: heads narrower than axes + 1 (C2A604).
    """
    notes, alpha = list[str](), shifts.alpha
    positions = kernel.grid_of(shifts.sides).key_coordinates().double()
    positions = positions - positions.mean(0)
    keys = torch.cat([positions, positions.square().sum(1, keepdim=True)], 1)

    def fit(layer: StartLayer, tokens: Tensor) -> None:
        if layer.width < keys.shape[1]:
            reason = f"{layer.name}: heads of {layer.width} numbers are narrower than {keys.shape[1]}"
            raise UnsupportedError("C2A604", reason, "Take fewer heads.")
        mean, root, worst = tokens.mean(0), layer.width**0.25, 0.0
        for bias in layer.biases:
            bias.zero_()
        for offset, query_rows, key_rows in shifts.heads(layer):
            shifted = positions + torch.tensor(offset)
            queries = torch.cat([2 * alpha * shifted, torch.full_like(shifted[:, :1], -alpha)], 1)
            balance = (queries.norm() / keys.norm()).sqrt()
            wanted = (root * queries / balance, root * keys * balance)
            query, key = (torch.linalg.lstsq(mean, each, driver="gelsd").solution for each in wanted)
            for rows, solution in ((query_rows, query), (key_rows, key)):
                rows.zero_()
                rows[: keys.shape[1]] = solution.T.to(rows)
            scores = queries @ keys.T
            error = (mean @ query) @ (mean @ key).T / root**2 - scores
            error = error - error.mean(1, keepdim=True)  # a softmax does not see what depends on the query alone
            worst = max(worst, float(error.abs().max() / scores.std()))
        notes.append(f"{layer.name}: scores on mean tokens are off by {worst:.2g}")

    shifts.run(fit)
    return shifts.rows(), tuple(notes)


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
