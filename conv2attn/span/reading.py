"""The attention rows of one layer or array on its grid.

The grid is the one that the caller passed, otherwise the one that the run of the network showed, otherwise inferred.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from torch import nn

from conv2attn.errors import UsageError, whole_number
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.networks.positions import PositionAttention, Unread
from conv2attn.networks.reading.records import Read
from conv2attn.networks.reading.token_grids import WHERE_UNKNOWN
from conv2attn.span.arrays import MEMORY_LIMIT, check_rows, read_array, reader, rows_at_once
from conv2attn.span.attention_rows import ROUNDOFF, ULPS, AttentionRows
from conv2attn.span.grids import as_sides, axes_named, sides_among
from conv2attn.span.layers import read_layer
from conv2attn.theory.basis import AttentionGrid, Sides, Sites

TAKEN_FOR = "tokens are taken for"
"""Words in the note on a layer whose class token and grid were guessed from the number of its tokens."""
ON_PIXELS = (PositionAttention, MultiHeadSelfAttention)
"""Kinds of layers whose attention follows from parameters, and whose tokens are all pixels."""
ROW_BY_ROW = "; if they are a grid row by row, pass it: --grid 14x14"
UNDERFLOW = 746.0
"""Scores this far below the largest have a weight of exactly zero in float64: exp(-746) is below 2^-1075."""


def rows_of(
    name: str,
    attention: Any,
    grid: Sequence[int] | int | None,
    dimensions: int | None = None,
    extra_tokens: int = 0,
    memory_limit: int = MEMORY_LIMIT,
    sampled: bool | None = None,
    exact: bool = False,
    sites: Sites | None = None,
) -> AttentionRows:
    """The attention rows of a layer on a grid, by position alone, or of an array.

    `exact` declares the numbers of an array exact; `sites` says at which keys its queries are, if that is known.

    Raises:
        UsageError: `attention` is not attention (C2A502), has no grid (C2A503), or is a model declared exact (C2A004).
    """
    if exact and isinstance(attention, nn.Module | PositionAttention):
        raise UsageError("C2A004", f"{name} is computed in floats: only arrays are exact", "Leave out --exact.")
    if isinstance(attention, PositionAttention):
        return read_positions(name, attention, memory_limit)
    if isinstance(attention, MultiHeadSelfAttention):
        sides = as_sides(grid, attention.dimensions)
        if sides is None:
            raise UsageError(
                "C2A503", f"{name}: the layer attends on any grid", "Pass the sides of its input with --grid."
            )
        return read_layer(name, attention, sides, memory_limit)
    if isinstance(attention, nn.Module):
        mistake = f"{name} is of class {type(attention).__name__}, a network and not the attention of one layer"
        raise UsageError("C2A502", mistake, "Pass one layer, or what conv2attn.capture returns for it.")
    dimensions = dimensions or axes_named(grid) or 2
    sides = as_sides(grid, dimensions)
    return read_array(
        name,
        attention,
        grid=sides if sites is None or sides is None else AttentionGrid(sides, sites),
        dimensions=dimensions,
        extra_tokens=extra_tokens,
        memory_limit=memory_limit,
        sampled=sampled,
        exact=exact,
    )


def read_positions(name: str, positions: PositionAttention, memory_limit: int) -> AttentionRows:
    """The rows of attention by position alone.

    Their uncertainty is that of a softmax in the dtype of the parameters, plus two errors in float64: the rounding of
    the scores, and the rounding of their distance from the largest score.

    Raises:
        UsageError: the attention is not finite (C2A502).
    """
    roundoff = ROUNDOFF[str(positions.dtype).removeprefix("torch.")]
    attention = positions.attention.numpy()[None]
    check_rows(name, attention, 2.0**-53)
    one_hot = bool(((attention == 0) | (attention == 1)).all())
    spread = float((positions.scores.amax(-1) - positions.scores.amin(-1)).max())
    # A weight is the exponential of its score minus the largest score. Both scores have errors, and the difference
    # rounds once more. Differences beyond `UNDERFLOW` do not matter, since the weight is 0.
    moved = 2 * positions.uncertainty + 2.0**-53 * min(spread, UNDERFLOW)
    return AttentionRows(
        name,
        attention.shape[1],
        1,
        positions.grid,
        roundoff,
        0 if one_hot else ULPS + math.ceil(moved / roundoff),
        reader(attention),
        rows_at_once(attention.shape[1], attention.shape[3], memory_limit),
        by_position=True,
        one_hot=one_hot,
        hot=attention.argmax(-1) if one_hot else None,
        extra=positions.extra,
        notes=(positions.how, *positions.notes),
    )


@final
@dataclass(frozen=True)
class Place:
    """The grid of a layer's tokens.

    Args:
        sides: sides of the grid; None if they are unknown.
        dimensions: number of axes of the grid.
        leading: number of tokens before the grid, such as a class token.
        sites: the keys at which the queries are.
        notes: what was guessed, in words.
    """

    sides: Sides | None
    dimensions: int = 2
    leading: int = 0
    sites: Sites | None = None
    notes: tuple[str, ...] = ()


def place_of(
    read: Read,
    grid: Sequence[int] | int | None,
    extra_tokens: int | Mapping[str, int] | None,
    counts: Mapping[str, tuple[int, ...]],
    dimensions: int | None,
) -> Place:
    """The grid of a layer's tokens: that of the caller, else that of the run, else inferred from the number of tokens.

    Raises:
        UsageError: extra tokens were passed for a layer that is read with its pixels alone (C2A004), or are not an
            integer (C2A001).
    """
    name, layer, tokens = read.name, read.attention, read.tokens
    if isinstance(layer, ON_PIXELS):
        if extra_tokens and not isinstance(extra_tokens, Mapping):
            raise UsageError("C2A004", f"{name} is read with its pixels alone", "Leave out extra_tokens.")
        sides = None if tokens is None else tokens.sides
        return Place(as_sides(grid, layer.dimensions) or sides if isinstance(layer, MultiHeadSelfAttention) else sides)
    passed = extra_tokens.get(name, 0) if isinstance(extra_tokens, Mapping) else extra_tokens
    dimensions = dimensions or axes_named(grid) or 2
    leading, sides = whole_number(passed or 0, "extra_tokens"), as_sides(grid, dimensions)
    sites: Sites | None = None
    # The grid of the run assumes the number of leading tokens that the run showed. If the caller passes another number,
    # the grid of the remaining tokens is inferred.
    if sides is None and tokens is not None and passed in (None, tokens.leading):
        leading, sides, dimensions = tokens.leading, tokens.sides or None, len(tokens.sides) or 1
        sites = tokens.sites
    elif passed is None and tokens is not None:
        leading = tokens.leading
    if tokens is not None and tokens.windows is not None and not tokens.sides and grid is None:
        dimensions, sides = 1, (tokens.windows.keys.shape[-1],)
    notes: tuple[str, ...] = ()
    if tokens is None and sides is None and passed is None and dimensions == 2:
        leading, notes = leading_of(counts.get(name, ()))
    own, *others = (tuple(count - leading for count in pair) for pair in (counts.get(name, ()), *counts.values()))
    return Place(sides_among(sides, own, others), dimensions, leading, sites, notes)


def leading_of(counts: Sequence[int]) -> tuple[int, tuple[str, ...]]:
    """Guesses the number of leading tokens of an array, with a note: 1 if all tokens but one form a square."""
    if len(counts) != 2 or counts[0] != counts[1]:
        return 0, ()
    count, side = counts[0], math.isqrt(counts[0])
    # 50 tokens are taken for a class token and 7x7 pixels, and 49 tokens for 7x7 pixels alone.
    if side**2 == count or side**2 != count - 1 or side < 2:
        return 0, ()
    return 1, (f"{count} {TAKEN_FOR} 1 + {side}x{side}: a class token and a square",)


def rows_of_read(
    read: Read,
    grid: Sequence[int] | int | None,
    extra_tokens: int | Mapping[str, int] | None,
    counts: Mapping[str, tuple[int, ...]],
    memory_limit: int = MEMORY_LIMIT,
    dimensions: int | None = None,
    **options: Any,
) -> AttentionRows | Unread:
    """The rows of a layer on its grid, or the reason why it has none.

    Args:
        counts: the numbers of queries and keys of every layer. They show which layer the caller's grid belongs to, if
            layers have several resolutions.
    """
    name, layer, of_parameters = read.name, read.attention, isinstance(read.attention, ON_PIXELS)
    if isinstance(layer, Unread):
        return layer
    if read.unplaced and grid is None and not of_parameters:
        return Unread(read.unplaced + (ROW_BY_ROW if WHERE_UNKNOWN in read.unplaced else ""))
    place = place_of(read, grid, extra_tokens, counts, dimensions)
    try:
        rows = rows_of(
            name, layer, place.sides, place.dimensions, place.leading, memory_limit, sites=place.sites, **options
        )
    except UsageError as error:
        # An array without a grid is an error of the caller. A layer of a run is reported as not read instead, with the
        # reason, so that the other layers are still reported. So is an array whose queries are not its keys.
        apart = len(set(counts.get(name, ()))) == 2 and error.code == "C2A503"
        if of_parameters or (read.tokens is None and not read.unplaced and not apart):
            raise
        return Unread(error.found.removeprefix(f"{name}: "))
    centers = None if read.centers is None else read.centers.numpy()
    return replace(rows, notes=(*place.notes, *rows.notes), centers=centers)
