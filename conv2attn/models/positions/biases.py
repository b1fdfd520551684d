"""Common parts of rules for relative position: tables of biases, windows, patches behind a class token."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from conv2attn.basis import AttentionGrid, Sides, Sites
from conv2attn.errors import UsageError
from conv2attn.models.positions.attention import UNIT, PositionAttention, Unread, leading
from conv2attn.models.positions.places import Place
from conv2attn.models.tokens import said_of_windows

BIAS = "relative position bias, with q . k held at zero"


def looked_up(part: Any) -> Tensor:
    """The biases in a table (displacements, heads), as (heads, queries, keys)."""
    return square(part.relative_position_bias_table.detach().double().cpu(), part.relative_position_index)


def square(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a table by an index (queries, keys) or flat, as (heads, queries, keys)."""
    tokens = math.isqrt(index.numel())
    return table[index.cpu().reshape(tokens, tokens)].permute(2, 0, 1)


def in_windows(scores: Tensor, sides: Sequence[int], place: Place, doubt: float = 0.0) -> PositionAttention:
    """Attention by position of a layer in windows: that of a window which the edge of the image does not cut."""
    grid = AttentionGrid(tuple(sides), Sites.everywhere(2))
    notes = [said_of_windows(sides)]
    shift = next(place.held("shift_size"), 0)
    if max(shift) if isinstance(shift, Sequence) else shift:
        notes.append("shifted windows that the edge of the image cuts also mask pixels, which is not part of this")
    return PositionAttention(scores, grid, dtype_of(place), BIAS, doubt, tuple(notes))


def on_patches(found: Sequence[tuple[Tensor, Any]], place: Place) -> PositionAttention | Unread:
    """The sum of biases; the class token, which comes first, asks nothing here and is the last key."""
    if not found:
        return Unread("it has no term of relative position")
    scores = sum((bias for bias, _ in found), torch.zeros(()))
    grid = AttentionGrid(tuple(found[0][1].window_size), Sites.everywhere(2))
    doubt = 0.0 if len(found) == 1 else UNIT * float(scores.abs().max())
    return PositionAttention(scores[:, 1:].roll(-1, -1), grid, dtype_of(place), BIAS, doubt, leading(1), extra=1)


def dtype_of(place: Place) -> torch.dtype:
    """That of the layer's parameters."""
    dtype: torch.dtype = next(place.module.parameters()).dtype
    return dtype


def sides_of_patches(place: Place) -> Sides:
    """The grid of patches of the network that a layer is in.

    Raises:
        UsageError: nothing says what it is (C2A503).
    """
    for patches in place.held("patch_embed"):
        if getattr(patches, "grid_size", None):
            return tuple(patches.grid_size)
        return (math.isqrt(patches.num_patches),) * 2
    raise UsageError("C2A503", f"{place.name}: it attends on every square grid")
