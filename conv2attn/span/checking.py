"""`check_span` decides conditions of Lemma 3 for a layer, an array, a network, or a mapping of these."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, get_args

import msgspec
from torch import nn

from conv2attn.arguments import Patterns, Selection
from conv2attn.errors import UsageError, real_number
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.layers.theorem import Convolution, as_convolution
from conv2attn.networks.positions import PositionAttention, Unread
from conv2attn.networks.reading.records import Read
from conv2attn.span.arrays import MEMORY_LIMIT
from conv2attn.span.attending import ask_attention, needs_inputs
from conv2attn.span.attention_rows import MOST_PHI, Limits, limits_for
from conv2attn.span.conditions import check, check_kernel
from conv2attn.span.ends import ends_of
from conv2attn.span.equations import shift_targets
from conv2attn.span.grids import as_offsets, as_sides, axes_named, check_extent
from conv2attn.span.reading import rows_of_read
from conv2attn.span.span_report import Condition, ConditionName, SpanReport, SpanRow
from conv2attn.theory.basis import Offset
from conv2attn.verdicts import Strength, Verdict

CONDITIONS: tuple[ConditionName, ...] = get_args(ConditionName)


def check_span(
    attention: Any,
    kernel_size: int | Sequence[int] = 3,
    *,
    dilation: int | Sequence[int] = 1,
    offsets: Sequence[Offset] | None = None,
    example_input: Any = None,
    grid: Sequence[int] | int | None = None,
    condition: ConditionName | Sequence[ConditionName] = "interior",
    eps: float | None = None,
    max_phi: float | None = None,
    tight: bool = False,
    convolution: nn.Module | Convolution | None = None,
    extra_tokens: int | Mapping[str, int] | None = None,
    memory_limit: int = MEMORY_LIMIT,
    sampled: bool | None = None,
    position_only: bool = False,
    exact: bool = False,
    only: Patterns = (),
    skip: Patterns = (),
    progress: Callable[[int, int, str], None] | None = None,
) -> SpanReport:
    """Whether attention can express every convolution of a kernel: the shifts lie in the span of the attention rows.

    A condition says which rows share one Phi:

    - joint: all queries.
    - interior: all queries whose whole neighbourhood is on the grid.
    - per-image: the interior queries of one image.
    - per-query: a single query, as the paper prints it.
    - kernel: the interior queries, for the combinations of shifts that a given `convolution` uses.

    Only the conditions that are passed are decided.

    Args:
        attention: a MultiHeadSelfAttention whose scores do not read the image, which is checked on its padded keys; an
            array or tensor (images, heads, queries, keys), whose first one or two axes may be absent and whose images
            share one Phi; a list of these, or a mapping from names to these; a network with `example_input` or
            `position_only`; or a network whose attention is by position alone.
        kernel_size, dilation: size and dilation of the kernel, one number or one for each axis.
        offsets: explicit offsets (key - query), in place of a kernel.
        example_input: the inputs of a network, a size for one image of noise, or a loader of batches. The attention of
            this run is captured.
        grid: sides of the tokens of an array, or of the input of a layer or network. By default the run of a network
            shows them. Otherwise they are inferred: a square, or the grid of another layer divided by one ratio along
            each axis.
        condition: the condition that decides the verdict; or several conditions, of which the first decides.
        eps: a residual of at most this counts as zero; by default, the residual that rounding of the attention
            explains.
        max_phi: the largest sum of absolute values of a row of Phi; by default 1e6 in float64 and 1e3 in float32.
        tight: whether a linear programme is solved for targets that least squares leaves undecided, because their
            residual is about as large as rounding. It is also solved if `eps` or `max_phi` is passed.
        convolution: a convolution whose offsets are used in all conditions. The kernel condition is about the
            combinations of shifts that it uses.
        extra_tokens: number of leading tokens that are not pixels, for all layers or by name; targets are 0 at these
            keys.
        memory_limit: bytes of the chunks of attention that are read at once.
        sampled: whether the images are a sample; by default, whether attention was captured or varies over the images.
        exact: whether the numbers of arrays are exact: fractions, integer weights (each row is divided by its sum), or
            floats as rational numbers. Then nothing is rounded, and `eps` is 0 by default.
        position_only: whether the attention of each layer of a network is read by position alone, in a run on
            `example_input` or on random numbers, in which content is set to zero. The report names layers that cannot
            be read in this way; see docs/check-span.md.
        only, skip: patterns of names of layers to check, and of layers to leave out.
        progress: called before each layer with its number from 1, the number of layers, and its name.
    Raises:
        UsageError: `attention` is not attention (C2A502) or has no grid (C2A503), offsets do not fit (C2A504), or an
            argument is wrong (C2A001 to C2A008).
    Source: Cordonnier et al. 2020, Lemma 3; claims L3 and L3' of proofs/.
    Examples:
        >>> import conv2attn, torch
        >>> layer = conv2attn.convert(torch.nn.Conv2d(3, 4, 3))
        >>> conv2attn.check_span(layer, kernel_size=3, grid=(6, 7)).verdict
        <Verdict.HOLDS: 'holds'>
        >>> conv2attn.check_span(layer, kernel_size=5, grid=(6, 7)).verdict
        <Verdict.REFUTED: 'refuted'>
    """
    names: tuple[ConditionName, ...] = (condition,) if isinstance(condition, str) else tuple(condition)
    offsets = None if offsets is None else as_offsets(offsets)
    kernel = None if convolution is None else as_convolution(convolution)
    taps = kernel.offsets if kernel is not None and offsets is None else None
    conditions = [name for name in CONDITIONS if name != "kernel" or kernel is not None]
    for name in names or ("",):
        if name not in conditions:
            reason = f"condition {name!r} is not one of {', '.join(conditions)}"
            raise UsageError("C2A002", reason, "Pass one of these; kernel needs a convolution.")
    check_numbers(eps, max_phi, memory_limit)
    # A limit that the caller passes may lie between the two bounds that least squares gives. The linear programme
    # closes this gap.
    tight = tight or eps is not None or max_phi is not None
    asked = ask_attention(attention, example_input, grid, Selection.of(only, skip), position_only)
    if isinstance(asked.model, nn.Module) and asked.inputs is None and not position_only:
        needs_inputs(asked.model)
    reads = asked.reads()
    # If `sampled` stays None, an array counts as a sample if its images differ.
    sampled = (reads.sampled or None) if sampled is None else sampled

    def check_layer(read: Read) -> SpanRow:
        name, layer, tokens = read.name, read.attention, read.tokens
        if isinstance(layer, Unread):
            dimensions = axes_named(grid) or 1
        else:
            captured = (len(tokens.sides) or None) if tokens is not None and grid is None else None
            dimensions = axes_of_layer(layer, kernel_size, offsets, grid, kernel, captured)
        options = {"sampled": sampled, "exact": exact}
        rows = rows_of_read(read, grid, extra_tokens, reads.counts, memory_limit, dimensions, **options)
        if tokens is not None and tokens.windows is not None and not tokens.sides and grid is None:
            rows = Unread("its tokens are in no order of rows and columns")
        if isinstance(rows, Unread):
            unread = Condition(names[0], Verdict.UNDECIDED, Strength.PROVED, sentence=f"not read: {rows.reason}")
            return SpanRow(name, 0, 0, (), Limits(0.0, 0.0), (unread,))
        notes = [*rows.notes, *read.notes]
        sides = (rows.grid.keys, rows.grid.queries)
        ours = isinstance(layer, MultiHeadSelfAttention)
        if not ours and isinstance(grid, Sequence) and tuple(grid) not in sides:
            notes.append(f"grid {'x'.join(map(str, sides[0]))} inferred from another layer's")
        limits = limits_for(rows, eps, max_phi)
        targets = shift_targets(rows.grid, taps or offsets_of(dimensions, kernel_size, dilation, offsets))

        def check_condition(name: ConditionName) -> Condition:
            if name == "kernel" and kernel is not None:
                return check_kernel(rows, kernel, limits, tight)
            condition = check(name, rows, targets, limits, tight)
            return msgspec.structs.replace(condition, ends=ends_of(condition, rows, targets, kernel))

        conditions = tuple(map(check_condition, dict.fromkeys(names)))
        return SpanRow(name, rows.heads, rows.images, rows.grid.keys, limits, conditions, tuple(notes))

    span_rows = list[SpanRow]()
    # The attention of two layers may not fit into memory, so one is dropped before the next is read. `enumerate` would
    # keep a reference to it.
    for read in reads:
        if progress is not None:
            progress(len(span_rows) + 1, len(reads), read.name)
        span_rows.append(check_layer(read))
        del read
    rows = tuple(span_rows)
    # Layers on a line and on a plane have the same kernel size, and different offsets.
    kernels = {taps or offsets_of(len(row.grid), kernel_size, dilation, offsets) for row in rows if row.grid}
    words = sorted(" ".join(f"({','.join(map(str, offset))})" for offset in kernel) for kernel in kernels)
    question = f"offsets: {'; '.join(words)}" if words else "offsets: none, since no layer was read"
    return SpanReport(rows, question, asked.header)


def check_numbers(eps: float | None, max_phi: float | None, memory_limit: int) -> None:
    """Refuses limits with which no verdict would mean anything.

    Raises:
        UsageError: a limit is not positive and finite, eps is 1 or more, or max_phi is out of range (C2A001).
    """
    for name, value in (("eps", eps), ("max_phi", max_phi), ("memory_limit", memory_limit)):
        if value is not None and not (0 <= real_number(value, name) < float("inf") and (value > 0 or name == "eps")):
            raise UsageError(
                "C2A001", f"{name}={value} is not a positive finite number", "Pass a positive finite number."
            )
    if eps is not None and eps >= 1:
        raise UsageError(
            "C2A001", f"eps={eps:g} is not below 1, the residual of a layer without heads", "Pass --eps below 1."
        )
    if max_phi is not None and not 1 / MOST_PHI <= max_phi <= MOST_PHI:
        sentence = f"max_phi={max_phi:g} is not from {1 / MOST_PHI:g} to {MOST_PHI:g}"
        raise UsageError("C2A001", sentence, "Pass a --max-phi within these limits.")


def axes_of_layer(
    layer: Any,
    kernel_size: int | Sequence[int],
    offsets: Sequence[Offset] | None,
    grid: Sequence[int] | int | None,
    convolution: Convolution | None,
    tokens: int | None,
) -> int:
    """Number of axes of the grid, from the arguments that determine it; by default two.

    `tokens` is the number of axes that the run of a network showed.

    Raises:
        UsageError: two arguments disagree, or the number is not 1, 2 or 3 (C2A504).
    """
    captured = layer.dimensions if isinstance(layer, MultiHeadSelfAttention) else tokens
    axes_by_source = {
        "the layer": len(layer.grid.keys) if isinstance(layer, PositionAttention) else captured,
        "the convolution": None if convolution is None else len(convolution.kernel_size),
        "offsets": len(offsets[0]) if offsets else None,
        "kernel_size": axes_named(kernel_size),
        "grid": axes_named(grid),
    }
    numbers = {name: number for name, number in axes_by_source.items() if number is not None}
    if len(set(numbers.values())) > 1:
        raise UsageError(
            "C2A504",
            "; ".join(f"{name} has {number} axes" for name, number in numbers.items()),
            "Pass --kernel-size and --dilation, or --offsets, with as many axes as the grid.",
        )
    dimensions = next(iter(numbers.values()), 2)
    if dimensions not in (1, 2, 3):
        raise UsageError(
            "C2A504",
            f"a grid of {dimensions} axes is not a line, plane or space",
            "Pass one, two or three sides with --grid.",
        )
    return dimensions


def offsets_of(
    dimensions: int,
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int],
    offsets: Sequence[Offset] | None,
) -> tuple[Offset, ...]:
    """The offsets of a kernel, `dilation * (t - floor((K - 1) / 2))`, or the explicit `offsets`.

    Raises:
        UsageError: offsets are empty, repeated or have another number of axes, or sizes are not positive (C2A504).
    """
    if offsets is not None:
        if not offsets or len(set(offsets)) < len(offsets) or {len(each) for each in offsets} != {dimensions}:
            raise UsageError(
                "C2A504",
                f"offsets {tuple(offsets)} are not distinct offsets of {dimensions} axes",
                "Pass each offset once, with one integer for each axis.",
            )
        check_extent(len(offsets), max(abs(x) for offset in offsets for x in offset))
        return tuple(offsets)
    sizes, steps = as_sides(kernel_size, dimensions) or (), as_sides(dilation, dimensions) or ()
    if {len(sizes), len(steps)} != {dimensions} or min(sizes + steps) < 1:
        raise UsageError(
            "C2A504",
            f"kernel_size={kernel_size} and dilation={dilation} are not positive whole numbers",
            "Pass --kernel-size and --dilation as positive whole numbers, one or one for each axis.",
        )
    # Checked before the product is formed, since a kernel with a million taps per side would fill the memory.
    check_extent(prod(sizes), max(d * (k - 1) for k, d in zip(sizes, steps, strict=True)))
    along = [[d * (t - (k - 1) // 2) for t in range(k)] for k, d in zip(sizes, steps, strict=True)]
    return tuple(product(*along))
