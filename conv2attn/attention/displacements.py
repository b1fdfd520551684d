"""Queries by their row-major index, and scores that are a sum over the axes."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from conv2attn.basis import AttentionGrid


class AxisScores(Protocol):
    """An encoding whose score is a sum over the axes, so that its softmax over a box is an outer product."""

    def axis_scores(self, displacement: Tensor, axis: int, dtype: torch.dtype) -> Tensor:
        """What `axis` adds: (heads, *displacement.shape)."""
        ...


def additive_scores(encoding: AxisScores, grid: AttentionGrid, rows: Tensor, dtype: torch.dtype) -> Tensor:
    """The scores of the queries `rows`: (heads, queries, keys)."""
    total: Tensor | None = None
    for axis, index in enumerate(unravel(rows, grid.queries)):
        part = encoding.axis_scores(grid.displacement(axis, index), axis, dtype)
        total = part if total is None else (total[..., None] + part[:, :, None]).flatten(2)
    assert total is not None
    return total


def unravel(rows: Tensor, sides: Sequence[int]) -> list[Tensor]:
    """The coordinates of row-major token indices, one tensor an axis."""
    coordinates: list[Tensor] = []
    for side in reversed(sides):
        coordinates.insert(0, rows % side)
        rows = rows // side
    return coordinates


def displacement_rows(grid: AttentionGrid, rows: Tensor) -> Tensor:
    """`key - site` for the queries `rows`: int64, (queries, keys, axes)."""
    sites = torch.stack([grid.site(a)[index] for a, index in enumerate(unravel(rows, grid.queries))], -1)
    keys = torch.cartesian_prod(*[torch.arange(side) for side in grid.keys]).reshape(-1, len(grid.keys))
    return keys[None] - sites[:, None]
