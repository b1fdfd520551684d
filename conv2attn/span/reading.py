"""The attention rows of anything that a user passes as attention: networks, layers and arrays.

A network is read as it runs, or by position alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from conv2attn.arguments import Patterns, Selection, running
from conv2attn.errors import Conv2AttnError, UsageError, whole_number
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.networks import attention_layers
from conv2attn.networks.positions import PositionAttention, Unread, position_attention
from conv2attn.networks.positions.position_attention import ATTENDS
from conv2attn.networks.reading.phase import own_sides, read_network
from conv2attn.networks.reading.records import Read, Reads, Tokens
from conv2attn.networks.specimens import wanted_inputs
from conv2attn.span.arrays import MEMORY_LIMIT, check_rows, read_array, reader, rows_at_once
from conv2attn.span.attention_rows import ROUNDOFF, ULPS, AttentionRows
from conv2attn.span.grids import as_sides, axes_named, sides_among
from conv2attn.span.layers import read_layer
from conv2attn.theory.basis import AttentionGrid, Sides, Sites

MOST_ZEROS = 2**24
"""Largest image of zeros, in numbers, that is run to find the grids of the layers of a network."""
TAKEN_FOR = "tokens are taken for"
"""In the note of a layer whose class token and grid were guessed from the number of its tokens."""
UNDERFLOW = 746.0
"""Scores so far below the largest have a weight of exactly zero in float64."""


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

    `exact` declares the numbers of an array exact; `sites` are where its queries stand on its keys, if that is known.

    Raises:
        UsageError: not attention (C2A502), no grid (C2A503), or extra tokens where there are none, or a model that is
            declared exact (C2A004).
    """
    if exact and isinstance(attention, nn.Module | PositionAttention):
        raise UsageError("C2A004", f"{name} is computed in floats: only arrays are exact", "Leave out --exact.")
    if isinstance(attention, PositionAttention):
        if extra_tokens:
            raise UsageError("C2A004", f"{name} is read with its pixels alone", "Leave out extra_tokens.")
        return read_positions(name, attention, as_sides(grid, len(attention.grid.keys)), memory_limit)
    if isinstance(attention, Unread):
        raise UsageError(
            "C2A502", f"{name}: {attention.reason}", "Pass --inputs, so that its attention is captured as it runs."
        )
    if isinstance(attention, MultiHeadSelfAttention):
        sides = as_sides(grid, attention.dimensions)
        if sides is None:
            raise UsageError(
                "C2A503", f"{name}: a layer attends on every grid", "Pass the sides of its input with --grid."
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


def as_reads(attention: Any) -> Reads:
    """Attention as records, from a mapping of names, a sequence of layers, or one layer."""
    if isinstance(attention, Reads):
        return attention
    if isinstance(attention, tuple | list):
        attention = {f"layer {place}": layer for place, layer in enumerate(attention)}
    named = attention if isinstance(attention, Mapping) else {"attention": attention}
    return Reads.of([own_read(str(name), layer) for name, layer in named.items()])


def own_read(name: str, layer: Any, tokens: Tokens | None = None) -> Read:
    """The record of a layer or an array; layers of this project have weights."""
    if not isinstance(layer, MultiHeadSelfAttention):
        return Read(name, layer, tokens)
    return Read.of_layer(name, layer, layer, tokens)


def read_positions(name: str, positions: PositionAttention, sides: Sides | None, memory_limit: int) -> AttentionRows:
    """The rows of attention that is computed from parameters.

    Its uncertainty is that of a softmax in the dtype of the parameters, plus the rounding of the scores and of their
    distance from the largest score in float64.

    Raises:
        UsageError: it is on another grid (C2A503), or not finite (C2A502).
    """
    if sides not in (None, positions.grid.keys):
        own_sides = "x".join(map(str, positions.grid.keys))
        raise UsageError("C2A503", f"{name}: its parameters are those of a grid {own_sides}", "Leave out the grid.")
    roundoff = ROUNDOFF[str(positions.dtype).removeprefix("torch.")]
    attention = positions.attention.numpy()[None]
    check_rows(name, attention, 2.0**-53)
    one_hot = bool(((attention == 0) | (attention == 1)).all())
    spread = float((positions.scores.amax(-1) - positions.scores.amin(-1)).max())
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
        notes=(f"from parameters, positions alone: {positions.how}", *positions.notes),
    )


def reads_of(
    model: Any,
    inputs: Any = None,
    grid: Sequence[int] | int | None = None,
    only: Patterns = (),
    position_only: bool = False,
) -> Reads:
    """The layers of a model that attend: captured on inputs, read by position alone, or already given as attention.

    Raises:
        UsageError: inputs beside what is attention already, or positions alone of what has no parameters (C2A004), or
            no layer of such a name (C2A008).
    """
    if isinstance(model, nn.Module) and inputs is not None and not position_only:
        return read_network(model, inputs, Selection.of(only))
    if isinstance(model, MultiHeadSelfAttention) and not position_only:
        reads = as_reads(model)
    elif isinstance(model, nn.Module):
        own = {n or "(root)": each for n, each in attention_layers(model).items() if not each.has_content}
        asked = {name: as_sides(grid, layer.dimensions) for name, layer in own.items()}
        sides = {name: each for name, each in asked.items() if each} or sides_without_inputs(model, own)
        others = {} if sides and own_alone(model) else position_attention(model, as_sides(grid, 2))
        ours = [own_read(name, own[name], Tokens(each)) for name, each in sides.items()]
        reads = Reads.of([*(own_read(name, each) for name, each in others.items() if name not in sides), *ours])
    elif position_only:
        raise UsageError(
            "C2A004",
            f"an object of class {type(model).__name__} has no parameters to read positions from",
            "Pass a network, or leave out --position-only.",
        )
    elif inputs is not None:
        raise UsageError("C2A004", f"an object of class {type(model).__name__} takes no inputs", "Leave them out.")
    else:
        reads = as_reads(model)
        if isinstance(model, PositionAttention) and as_sides(grid, len(model.grid.keys)) not in (None, model.grid.keys):
            words = "x".join(map(str, model.grid.keys))
            raise UsageError("C2A503", f"its parameters are those of a grid {words}", "Leave out the grid.")
    return reads.only(only)


def own_alone(model: nn.Module) -> bool:
    """Whether a network attends, and only in layers of this project that read no content.

    Modules count as attention by the names of their classes.
    """
    own = attention_layers(model)
    named = [
        name
        for name, module in model.named_modules()
        if ATTENDS.search(type(module).__name__) and not isinstance(module, MultiHeadSelfAttention)
        if not any(each == name or each.startswith(f"{name}.") or not name for each in own)
        if not any(name.startswith(f"{each}.") for each in own)
    ]
    return bool(own) and not named and not any(layer.has_content for layer in own.values())


def needs_inputs(network: nn.Module) -> None:
    """Refuses a network whose attention depends on its inputs.

    Raises:
        UsageError: it does (C2A502), or nothing in it is known to attend (C2A501).
    """
    own, kind = attention_layers(network), type(network).__name__
    if own and own_alone(network):
        return
    if not own and not any(ATTENDS.search(type(module).__name__) for module in network.modules()):
        remedy = "Pass --inputs if it attends nevertheless."
        raise UsageError("C2A501", f"{kind} has no layer that is known to attend", remedy)
    raise UsageError(
        "C2A502",
        f"attention of the {kind} depends on its inputs",
        f"Pass {wanted_inputs(network)[0]} with --inputs, or ask for positions alone with --position-only.",
    )


def sides_without_inputs(model: nn.Module, layers: Mapping[str, MultiHeadSelfAttention]) -> dict[str, Sides]:
    """The sides that reach layers of this project in a run on an image of zeros, of the size of the network's plan.

    None where there is no plan, or the network does not run.
    """
    size: Sides | None = getattr(getattr(model, "plan", None), "input_size", None)
    if not layers or size is None or math.prod(size) > MOST_ZEROS:
        return {}
    image = torch.zeros(1, *size).to(next(model.parameters()))
    try:
        with running(model, image):
            return {name: each for name, each in own_sides(model, image).items() if name in layers}
    except Conv2AttnError:
        return {}


def leading_of(counts: Sequence[int]) -> tuple[int, tuple[str, ...]]:
    """How many tokens of an array lead a square, with a note: one where so many are no square and one less are."""
    if len(counts) != 2 or counts[0] != counts[1]:
        return 0, ()
    count, side = counts[0], math.isqrt(counts[0])
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
    """The rows of a layer on its grid: that of the caller, of the run, or of an array, which may be inferred.

    Args:
        counts: the numbers of queries and keys of all layers, among which one grid serves several resolutions.
    """
    name, layer, tokens = read.name, read.attention, read.tokens
    if isinstance(layer, Unread):
        return layer
    if isinstance(layer, PositionAttention | MultiHeadSelfAttention):
        if extra_tokens and not isinstance(extra_tokens, Mapping):
            raise UsageError("C2A004", f"{name} is read with its pixels alone", "Leave out extra_tokens.")
        sides = None if tokens is None else tokens.sides
        if isinstance(layer, MultiHeadSelfAttention):
            sides = as_sides(grid, layer.dimensions) or sides
        return rows_of(name, layer, sides, memory_limit=memory_limit, **options)
    if read.unplaced and grid is None:
        return Unread(read.unplaced)
    leading = extra_tokens.get(name, 0) if isinstance(extra_tokens, Mapping) else extra_tokens
    dimensions = dimensions or axes_named(grid) or 2
    extra, sides = whole_number(leading or 0, "extra_tokens"), as_sides(grid, dimensions)
    if sides is None and tokens is not None and leading in (None, tokens.leading):
        extra, sides, dimensions = tokens.leading, tokens.sides or None, len(tokens.sides) or 1
        options |= {"sites": tokens.sites}
    elif leading is None and tokens is not None:
        extra = tokens.leading
    if tokens is not None and tokens.windows is not None and not tokens.sides and grid is None:
        dimensions = 1
    inferred: tuple[str, ...] = ()
    if tokens is None and sides is None and leading is None and dimensions == 2:
        extra, inferred = leading_of(counts.get(name, ()))
    own = tuple(count - extra for count in counts.get(name, ()))
    others = [tuple(count - extra for count in each) for each in counts.values()]
    try:
        rows = rows_of(name, layer, sides_among(sides, own, others), dimensions, extra, memory_limit, **options)
        centers = None if read.centers is None else read.centers.numpy()
        return replace(rows, notes=(*inferred, *rows.notes), centers=centers)
    except UsageError as error:
        apart = len(own) == 2 and own[0] != own[1] and error.code == "C2A503"
        if tokens is None and not read.unplaced and not apart:
            raise
        return Unread(error.found.removeprefix(f"{name}: "))
