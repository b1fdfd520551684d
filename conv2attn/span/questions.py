"""Questions about the heads of one layer, given as check_span takes it: a layer, or an array."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.errors import UsageError
from conv2attn.models.positions import PositionAttention, Unread
from conv2attn.span.conditions.limits import limits_for
from conv2attn.span.conditions.problem import AttentionRows
from conv2attn.span.positions import read_positions
from conv2attn.span.programme.kernel import as_convolution
from conv2attn.span.sources.arguments import as_sides, axes_named
from conv2attn.span.sources.layers import read_layer
from conv2attn.span.sources.rationals import read_exact
from conv2attn.span.sources.reading import MEMORY_LIMIT, read_array
from conv2attn.span.uses.express import Fit, fit
from conv2attn.span.uses.heads import HeadReading, Redundancy, read_heads, redundancy
from conv2attn.span.uses.profiles import Profiles, sort_into_patterns
from conv2attn.theorem import Convolution


def rows_of(
    name: str,
    attention: Any,
    grid: Sequence[int] | int | None,
    dimensions: int = 2,
    extra_tokens: int = 0,
    memory_limit: int = MEMORY_LIMIT,
    sampled: bool | None = None,
    exact: bool = False,
) -> AttentionRows:
    """The attention of a layer on a grid, by position alone, or of an array; `exact` declares that its numbers are.

    Raises:
        UsageError: not attention (C2A502), no grid (C2A503), or extra tokens where there are none, or a model that is
            declared exact (C2A004).
    """
    if exact and isinstance(attention, nn.Module | PositionAttention):
        raise UsageError("C2A004", f"{name} is computed in floats: only arrays are exact", "Leave out exact (--exact).")
    if isinstance(attention, PositionAttention):
        if extra_tokens:
            raise UsageError("C2A004", f"{name} is read with its pixels alone", "Leave out extra_tokens.")
        return read_positions(name, attention, as_sides(grid, len(attention.grid.keys)), memory_limit)
    if isinstance(attention, Unread):
        raise UsageError("C2A502", f"{name}: {attention.reason}")
    if isinstance(attention, MultiHeadSelfAttention):
        sides = as_sides(grid, attention.dimensions)
        if sides is None:
            raise UsageError("C2A503", f"{name}: a layer attends on every grid")
        return read_layer(name, attention, sides, memory_limit)
    if isinstance(attention, nn.Module):
        remedy = "Pass capture(network, inputs); or position_only=True to check_span, or position_attention(network)."
        raise UsageError("C2A502", f"{name} is a {type(attention).__name__}, which attends to its inputs", remedy)
    reads = read_exact if exact or str(getattr(attention, "dtype", "")) == "object" else read_array
    return reads(
        name,
        attention,
        grid=as_sides(grid, dimensions),
        dimensions=dimensions,
        extra_tokens=extra_tokens,
        memory_limit=memory_limit,
        sampled=sampled,
    )


def axes(grid: Sequence[int] | int | None) -> int:
    """Number of axes that a grid names, otherwise two."""
    return axes_named(grid) or 2


def head_offsets(
    attention: Any, *, grid: Sequence[int] | int | None = None, extra_tokens: int = 0, eps: float | None = None
) -> tuple[HeadReading, ...]:
    """For each head its centre, spread and peak, and the offset that it implements if any."""
    rows = rows_of("attention", attention, grid, axes(grid), extra_tokens)
    return read_heads(rows, limits_for(rows, eps, None).allowed(1.0))


def redundant_heads(
    attention: Any, *, grid: Sequence[int] | int | None = None, extra_tokens: int = 0, eps: float | None = None
) -> Redundancy:
    """Which heads the span does not need."""
    rows = rows_of("attention", attention, grid, axes(grid), extra_tokens)
    return redundancy(rows, limits_for(rows, eps, None).allowed(1.0))


def profiles(
    attention: Any, *, grid: Sequence[int] | int | None = None, extra_tokens: int = 0, tolerance: float = 0.05
) -> Profiles:
    """Which heads are translates of one pattern, and what the layer reads as."""
    return sort_into_patterns(rows_of("attention", attention, grid, axes(grid), extra_tokens), tolerance)


def fit_heads(
    convolution: nn.Module | Convolution,
    attention: Any,
    *,
    grid: Sequence[int] | int | None = None,
    extra_tokens: int = 0,
) -> Fit:
    """The weights with which heads that attend so compute a convolution, as well as they can: one set for all images.

    Where `attention` is a layer of conv2attn, `express` gives the layer.

    Raises:
        UsageError: the axes of the convolution and of the grid differ (C2A504), or it is no such attention (C2A502).
    Source: Cordonnier et al. 2020, Lemma 3, with one Phi for all queries; claim L3' of proofs/.
    """
    given = as_convolution(convolution)
    axes = len(given.kernel_size)
    rows = rows_of("attention", attention, grid, axes, extra_tokens)
    if len(rows.grid.keys) != axes:
        raise UsageError("C2A504", f"a convolution of {axes} axes, attention of {len(rows.grid.keys)}")
    return fit(given, rows)
