"""check_span: the conditions side by side, for a layer, an array, or a mapping of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import prod
from typing import Any, Literal, get_args

import numpy as np
from torch import nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.basis import Offset, terms
from conv2attn.errors import UsageError
from conv2attn.models.positions import PositionAttention, Unread
from conv2attn.span.conditions.limits import MOST_PHI, ROUNDOFF, Limits, limits_for
from conv2attn.span.conditions.problem import AttentionRows, Targets, operators_of, shifts
from conv2attn.span.conditions.sharing import shared_out
from conv2attn.span.positions import named_layers, unread_if_apart, unread_row
from conv2attn.span.programme.decision import decide
from conv2attn.span.programme.kernel import as_convolution, decide_kernel
from conv2attn.span.programme.memory import check_memory
from conv2attn.span.programme.queries import decide_per_query
from conv2attn.span.questions import rows_of
from conv2attn.span.report import SpanReport, SpanRow
from conv2attn.span.sources.arguments import as_offsets, as_sides, axes_named, check_extent
from conv2attn.span.sources.grids import sides_among
from conv2attn.span.sources.reading import MEMORY_LIMIT
from conv2attn.theorem import Convolution
from conv2attn.verdicts import Strength

Condition = Literal["per-query", "joint", "interior", "kernel"]
CONDITIONS: tuple[Condition, ...] = get_args(Condition)


def check_span(
    attention: Any,
    kernel_size: int | Sequence[int] = 3,
    *,
    dilation: int | Sequence[int] = 1,
    offsets: Sequence[Offset] | None = None,
    grid: Sequence[int] | int | None = None,
    condition: Condition = "interior",
    eps: float | None = None,
    max_phi: float | None = None,
    convolution: nn.Module | Convolution | None = None,
    extra_tokens: int | Mapping[str, int] = 0,
    memory_limit: int = MEMORY_LIMIT,
    sampled: bool | None = None,
    position_only: bool = False,
    exact: bool = False,
    structure: Any = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> SpanReport:
    """Whether attention can express every convolution of a kernel: the shifts lie in the span of the attention rows.

    Four conditions are decided: a Phi for each query (as the paper prints it), one Phi for all queries (joint), for all
    whose neighbourhood is on the grid (interior), and for what a given `convolution` uses (kernel). Under
    torch.distributed the layers are shared out, and every process returns the whole report.

    Args:
        attention: a MultiHeadSelfAttention that does not read content, judged on its padded keys; an array or tensor
            (heads, queries, keys) or (images, heads, queries, keys), images sharing one Phi; or a mapping of names to
            such; any network with `position_only`.
        kernel_size, dilation: of the kernel, a number or one for each axis.
        offsets: instead of them, explicit offsets (key - query).
        grid: sides of the tokens of an array; of the input of a layer. Inferred where it is a square, or where layers
            of a network have as many times fewer along each axis as one that has these.
        condition: the one that decides the verdict.
        eps: the residual that counts as none; by default what the rounding of the attention lets through.
        max_phi: the largest sum of absolute values of a row of Phi; 1e6 in float64, 1e3 in float32 by default.
        convolution: whose combinations the kernel condition asks for, and whose offsets all do.
        extra_tokens: leading tokens that are not pixels, of all layers or by name: keys of which targets ask nothing.
        memory_limit: bytes of all arrays beside the attention: a quarter for chunks of it, the rest for what is kept.
        sampled: whether the images are samples of more; by default, whether attention varies over them.
        exact: the numbers of the arrays are the operator itself: fractions, whole weights (each row is divided by its
            sum), or floats as the rationals that they are. Then nothing is rounded, and `eps` is 0 by default.
        structure: instead of shifts, the family of operators of another basis convolution, such as
            `conv2attn.basis.gcn(graph)`: the attention is that on the nodes of this graph, and the joint condition
            decides.
        position_only: read each layer of a network that attends from its parameters, by position alone, and name those
            that cannot be read so; see docs/check-span.md for the kinds that are known.
        progress: called before each layer with its number from 1, the number of layers, and its name.
    Raises:
        UsageError: not attention (C2A502), no grid (C2A503), offsets that do not fit (C2A504), arguments (C2A001 to
            C2A006), or a limit of memory that is too low, with the one that would do (C2A202).
    Source: Cordonnier et al. 2020, Lemma 3; claims L3 and L3' of proofs/.
    Examples:
        >>> import conv2attn, torch
        >>> layer = conv2attn.convert(torch.nn.Conv2d(3, 4, 3))
        >>> conv2attn.check_span(layer, kernel_size=3, grid=(6, 7)).verdict
        <Verdict.HOLDS: 'holds'>
        >>> conv2attn.check_span(layer, kernel_size=5, grid=(6, 7)).verdict
        <Verdict.REFUTED: 'refuted'>
    """
    given = named_layers(attention, grid, position_only)
    if structure is not None and (offsets is not None or convolution is not None or position_only):
        raise UsageError("C2A004", "a structure says itself what is asked for", "Leave out what else says so.")
    offsets = None if offsets is None else as_offsets(offsets)
    read_as = None if convolution is None else as_convolution(convolution)
    if condition not in CONDITIONS or (condition == "kernel" and read_as is None):
        known = ", ".join(CONDITIONS)
        raise UsageError("C2A002", f"condition {condition!r} is not one of {known}, the last for a given convolution")
    for name, value in (("eps", eps), ("max_phi", max_phi), ("memory_limit", memory_limit)):
        if value is not None and not (0 <= value < float("inf") and (value > 0 or name == "eps")):
            raise UsageError("C2A001", f"{name}={value} is not a positive finite number")
    if eps is not None and eps >= 1:
        raise UsageError("C2A001", f"eps={eps:g} counts as none as much as no heads at all leave, which is 1")
    if max_phi is not None and max_phi > MOST_PHI:
        raise UsageError("C2A001", f"max_phi={max_phi:g} is more than {MOST_PHI:g}")
    asked, layers, extra, sides = {}, {}, {}, {}
    for name, layer in given.items():
        if structure is not None or isinstance(layer, Unread):
            dimensions = axes_named(grid) or 1
        else:
            dimensions = axes_of(layer, kernel_size, offsets, grid, read_as)
        extra[name] = extra_tokens.get(name, 0) if isinstance(extra_tokens, Mapping) else extra_tokens
        sides[name] = sides_among(as_sides(grid, dimensions), layer, extra[name], given.values())
        layers[name] = unread_if_apart(layer, sides[name], dimensions, extra[name])
        if structure is not None or isinstance(layers[name], Unread):
            continue
        own = read_as.offsets if read_as is not None and offsets is None else None
        asked[name] = own or offsets_of(dimensions, kernel_size, dilation, offsets)

    def check_layer(name: str) -> SpanRow:
        if progress is not None:
            progress(list(layers).index(name) + 1, len(layers), name)
        if isinstance(layers[name], Unread):
            return unread_row(name, layers[name], "joint" if structure is not None else condition)
        at = None if position_only and isinstance(layers[name], PositionAttention) else sides[name]
        axes = len(asked[name][0]) if name in asked else axes_named(grid) or 1
        found = rows_of(name, layers[name], at, axes, extra[name], memory_limit, sampled, exact)
        if at is not None and isinstance(grid, Sequence) and at != tuple(grid):
            found = replace(found, notes=(*found.notes, f"grid {'x'.join(map(str, at))} inferred from another layer's"))
        if name in given.notes:
            found = replace(found, notes=(*found.notes, given.notes[name]))
        limits = limits_for(found, eps, max_phi)
        targets = operators_of(structure, found.grid) if structure is not None else shifts(found.grid, asked[name])
        conditions = 2 + (found.images + 1) * (found.images > 1) + bool(found.extra) + (read_as is not None)
        check_memory(found, targets, conditions, memory_limit)
        return check(found, targets, condition if structure is None else "joint", limits, read_as)

    rows = shared_out([partial(check_layer, name) for name in layers])
    if structure is not None:
        return SpanReport(
            tuple(rows), f"asked: the operators of a {type(structure).__name__}, {terms(structure)} of them"
        )
    told = {" ".join("(" + ",".join(map(str, each)) + ")" for each in chosen) for chosen in asked.values()}
    return SpanReport(tuple(rows), "asked: offsets " + "; ".join(sorted(told)))


def check(
    attention: AttentionRows, targets: Targets, decisive: str, limits: Limits, convolution: Convolution | None
) -> SpanRow:
    """The conditions of one layer."""
    everywhere = np.ones(targets.places.shape[1], dtype=bool)
    inside = targets.interior
    conditions = [decide_per_query(attention, targets, limits), decide("joint", attention, targets, everywhere, limits)]
    if all(targets.offsets):
        conditions.append(decide("interior", attention, targets, inside, limits))
    if convolution is not None:
        roundoff = ROUNDOFF[str(convolution.weight.dtype).removeprefix("torch.")]
        conditions.append(decide_kernel(attention, convolution, limits, roundoff)[0])
    beside = []
    chosen, alone = (everywhere, "joint") if decisive == "joint" else (inside, "interior")
    apart = attention.renormalised() if attention.extra else None
    if apart is not None:
        found = decide(f"{alone}, renormalised", apart, targets, chosen, limits)
        beside.append(replace(found, strength=Strength.SAMPLED))
    if attention.images > 1:
        beside += [decide(f"{alone}, average", attention.average(), targets, chosen, limits)]
        for image in range(attention.images):
            beside.append(decide(f"{alone}, image {image}", attention.only(image), targets, chosen, limits))
    return SpanRow(
        attention.name,
        attention.heads,
        attention.images,
        attention.grid.keys,
        tuple(conditions),
        decisive,
        limits,
        tuple(beside),
        attention.content,
        attention.notes,
    )


def axes_of(
    given: Any,
    kernel_size: int | Sequence[int],
    offsets: Sequence[Offset] | None,
    grid: Sequence[int] | int | None,
    convolution: Convolution | None,
) -> int:
    """Number of axes of the grid: as whatever names them says, otherwise two.

    Raises:
        UsageError: what names them disagrees (C2A504).
    """
    told = {
        "the layer": axes_of_layer(given),
        "the convolution": None if convolution is None else len(convolution.kernel_size),
        "offsets": len(offsets[0]) if offsets else None,
        "kernel_size": axes_named(kernel_size),
        "grid": axes_named(grid),
    }
    numbers = {name: number for name, number in told.items() if number is not None}
    if len(set(numbers.values())) > 1:
        raise UsageError("C2A504", "; ".join(f"{name} has {number} axes" for name, number in numbers.items()))
    dimensions = next(iter(numbers.values()), 2)
    if dimensions not in (1, 2, 3):
        raise UsageError("C2A504", f"a grid of {dimensions} axes is not a line, plane or space")
    return dimensions


def axes_of_layer(given: Any) -> int | None:
    """Number of axes of the grid of a layer; None of an array."""
    if isinstance(given, PositionAttention):
        return len(given.grid.keys)
    return given.dimensions if isinstance(given, MultiHeadSelfAttention) else None


def offsets_of(
    dimensions: int,
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int],
    offsets: Sequence[Offset] | None,
) -> tuple[Offset, ...]:
    """The offsets asked for: `dilation * (t - floor((K - 1) / 2))`, or those given.

    Raises:
        UsageError: none, one twice, of too many axes, or sizes that are not positive (C2A504).
    """
    if offsets is not None:
        if not offsets or len(set(offsets)) < len(offsets) or {len(each) for each in offsets} != {dimensions}:
            raise UsageError("C2A504", f"offsets {tuple(offsets)} are not distinct, with {dimensions} axes each")
        check_extent(len(offsets), max(abs(x) for offset in offsets for x in offset))
        return tuple(offsets)
    sizes, steps = as_sides(kernel_size, dimensions), as_sides(dilation, dimensions)
    assert sizes is not None
    assert steps is not None
    if len(steps) != dimensions or min(sizes + steps) < 1:
        raise UsageError("C2A504", f"kernel_size={kernel_size} and dilation={dilation} are not {dimensions} positive")
    check_extent(prod(sizes), max(d * (k - 1) for k, d in zip(sizes, steps, strict=True)))
    along = [[d * (t - (k - 1) // 2) for t in range(k)] for k, d in zip(sizes, steps, strict=True)]
    return tuple(product(*along))
