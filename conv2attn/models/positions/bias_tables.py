"""Common parts of rules for relative position: tables of biases, windows, patches behind a class token."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from conv2attn.basis import AttentionGrid, Sides, Sites
from conv2attn.errors import UsageError
from conv2attn.models.positions.module_places import ModulePlace
from conv2attn.models.positions.position_scores import UNIT, PositionAttention, Unread, leading_note
from conv2attn.models.tokens import windows_note

BIAS = "relative position bias, with q . k held at zero"


def table_biases(part: Any) -> Tensor:
    """The biases in a table (displacements, heads), as (heads, queries, keys)."""
    return biases_by_index(part.relative_position_bias_table.detach().double().cpu(), part.relative_position_index)


def biases_by_index(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a table by an index (queries, keys) or flat, as (heads, queries, keys)."""
    tokens = math.isqrt(index.numel())
    return table[index.cpu().reshape(tokens, tokens)].permute(2, 0, 1)


def in_windows(scores: Tensor, sides: Sequence[int], place: ModulePlace, uncertainty: float = 0.0) -> PositionAttention:
    """Attention by position of a layer in windows: that of a window which the edge of the image does not cut."""
    grid = AttentionGrid(tuple(sides), Sites.everywhere(2))
    notes = [windows_note(sides)]
    shift = next(place.attribute_values("shift_size"), 0)
    if max(shift) if isinstance(shift, Sequence) else shift:
        notes.append("shifted windows that the edge of the image cuts also mask pixels, which is not part of this")
    return PositionAttention(scores, grid, parameter_dtype(place), BIAS, uncertainty, tuple(notes))


def behind_class_token(tables: Sequence[tuple[Tensor, Any]], place: ModulePlace) -> PositionAttention | Unread:
    """Attention by the sum of biases of patches behind a class token; the class token becomes the last key."""
    if not tables:
        return Unread("it has no term of relative position")
    scores = sum((bias for bias, _ in tables), torch.zeros(()))
    grid = AttentionGrid(tuple(tables[0][1].window_size), Sites.everywhere(2))
    uncertainty = 0.0 if len(tables) == 1 else UNIT * float(scores.abs().max())
    return PositionAttention(
        scores[:, 1:].roll(-1, -1), grid, parameter_dtype(place), BIAS, uncertainty, leading_note(1), extra=1
    )


def parameter_dtype(place: ModulePlace) -> torch.dtype:
    """The dtype of the layer's parameters."""
    dtype: torch.dtype = next(place.module.parameters()).dtype
    return dtype


def sides_of_patches(place: ModulePlace) -> Sides:
    """The grid of patches of the network that a layer is in.

    Raises:
        UsageError: nothing says what it is (C2A503).
    """
    for patches in place.attribute_values("patch_embed"):
        if getattr(patches, "grid_size", None):
            return tuple(patches.grid_size)
        return (math.isqrt(patches.num_patches),) * 2
    raise UsageError("C2A503", f"{place.name}: it attends on every square grid", "Say which with --grid.")
