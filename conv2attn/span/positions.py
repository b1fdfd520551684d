"""Attention by position alone, of layers whose parameters determine it, among what check_span is given."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from conv2attn.basis import Sides
from conv2attn.errors import UsageError
from conv2attn.models.capture import NamedAttention
from conv2attn.models.positions import PositionAttention, Unread, position_attention
from conv2attn.span.conditions.condition import Condition
from conv2attn.span.conditions.limits import ROUNDOFF, ULPS, Limits
from conv2attn.span.conditions.problem import AttentionRows
from conv2attn.span.report import SpanRow
from conv2attn.span.sources.arguments import as_sides
from conv2attn.span.sources.grids import apart, grid_of
from conv2attn.span.sources.reading import check_rows, chunks
from conv2attn.verdicts import Strength, Verdict

UNDERFLOW = 746.0
"""Scores so far below the largest have a weight of exactly zero in float64."""


def named_layers(attention: Any, grid: Sequence[int] | int | None, position_only: bool) -> NamedAttention:
    """The layers to be checked, by name: all of a network where positions alone are asked for.

    Raises:
        UsageError: positions alone of what has no parameters (C2A004).
    """
    if position_only and not isinstance(attention, nn.Module):
        raise UsageError("C2A004", f"a {type(attention).__name__} has no parameters to read positions from")
    if position_only:
        return NamedAttention(position_attention(attention, as_sides(grid, 2)))
    return as_layers(attention)


def as_layers(attention: Any) -> NamedAttention:
    """Attention by name: that of a mapping, of a tuple of layers as networks return it, or one."""
    if isinstance(attention, NamedAttention):
        return attention
    if isinstance(attention, tuple):
        return NamedAttention({f"layer {place}": layer for place, layer in enumerate(attention)})
    given = attention if isinstance(attention, Mapping) else {"attention": attention}
    return NamedAttention({str(name): layer for name, layer in given.items()})


def read_positions(name: str, given: PositionAttention, sides: Sides | None, memory_limit: int) -> AttentionRows:
    """The rows of attention computed from parameters: known to what the dtype of these lets a softmax be.

    On top of that come the rounding of its scores, and of their distance from the largest, in float64.

    Raises:
        UsageError: it is on another grid (C2A503), or not finite (C2A502).
    """
    if sides not in (None, given.grid.keys):
        own = "x".join(map(str, given.grid.keys))
        raise UsageError("C2A503", f"{name}: its parameters are those of a grid {own}", "Leave out the grid.")
    roundoff = ROUNDOFF[str(given.dtype).removeprefix("torch.")]
    whole = given.attention.numpy()[None]
    check_rows(name, whole, 2.0**-53)
    one_hot = bool(((whole == 0) | (whole == 1)).all())
    spread = float((given.scores.amax(-1) - given.scores.amin(-1)).max())
    moved = 2 * given.doubt + 2.0**-53 * min(spread, UNDERFLOW)
    return AttentionRows(
        name,
        whole.shape[1],
        1,
        given.grid,
        roundoff,
        0 if one_hot else ULPS + math.ceil(moved / roundoff),
        lambda *images: chunks(whole, memory_limit, images),
        one_hot=one_hot,
        hot=whole.argmax(-1) if one_hot else None,
        extra=given.extra,
        notes=(f"from parameters, positions alone: {given.how}", *given.notes),
    )


def unread_if_apart(layer: Any, grid: Sequence[int] | int | None, dimensions: int, extra: int) -> Any:
    """The layer, unless it is an array of attention whose queries and keys stand on no common grid: then why."""
    shape: tuple[int, ...] = tuple(getattr(layer, "shape", ()))
    if len(shape) not in (3, 4) or shape[-1] == shape[-2] or 0 in shape:
        return layer
    try:
        grid_of("", shape[-2] - extra, shape[-1] - extra, as_sides(grid, dimensions), dimensions)
    except UsageError:
        return Unread(apart(*shape[-2:]))
    return layer


def unread_row(name: str, layer: Unread, condition: str) -> SpanRow:
    """The row of a layer that could not be read, and so was not checked."""
    told = Condition(condition, Verdict.UNSUPPORTED, Strength.PROVED, (), 0, sentence=f"not read: {layer.reason}")
    return SpanRow(name, 0, 0, (), (told,), condition, Limits(0.0, 0.0))
