"""`conv2attn.heads`, which measures facts of the heads of any attention."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import msgspec
import numpy as np
from torch import Tensor, nn

from conv2attn.arguments import Patterns, Selection
from conv2attn.errors import UsageError
from conv2attn.networks.positions import Unread
from conv2attn.networks.reading import Windows
from conv2attn.networks.specimens import wanted_inputs
from conv2attn.span.arrays import MEMORY_LIMIT
from conv2attn.span.attending import ask_attention, check_images
from conv2attn.span.attention_rows import Array, AttentionRows
from conv2attn.span.graded_facts.effects import ReplacedBy
from conv2attn.span.graded_facts.fact_table import estimates_of_heads, numbers_of_head
from conv2attn.span.graded_facts.facts import (
    Errors,
    HeadFacts,
    HeadsReport,
    LayerFacts,
    Shares,
    SpanFact,
    kind_of,
)
from conv2attn.span.graded_facts.measures import (
    DILATIONS,
    KERNELS,
    Estimate,
    error_of,
    estimated,
    explained_of_uniform,
    mean_of,
    number,
    shares,
    spanned,
)
from conv2attn.span.graded_facts.named_facts import SummedHead
from conv2attn.span.graded_facts.nearest import nearest_convolutions
from conv2attn.span.graded_facts.patterns import coverage, of_patterns, redundant_pairs
from conv2attn.span.graded_facts.replacing import Replacing
from conv2attn.span.graded_facts.sums import Sums, kernel, sums_of
from conv2attn.span.reading import rows_of_read


def heads(
    model: Any,
    example_input: Any = None,
    *,
    grid: Sequence[int] | int | None = None,
    extra_tokens: int | Mapping[str, int] | None = None,
    replace: ReplacedBy | None = None,
    replaced_heads: Mapping[str, Sequence[int]] | None = None,
    labels: Tensor | Sequence[int] | None = None,
    only: Patterns = (),
    skip: Patterns = (),
    memory_limit: int = MEMORY_LIMIT,
    progress: Callable[[int, int, str], None] | None = None,
) -> HeadsReport:
    """Graded facts of every head of every layer, from one run of the network and one pass over its attention.

    Shares are estimated without bias over the images, with standard errors. A share is None if one image does not
    determine it.

    Args:
        model: a network, whose attention is captured on `example_input` or, without one, read by position alone; a
            layer of this project; an array (images, heads, queries, keys), whose first one or two axes may be absent; a
            list of these, or a mapping from names to these.
        example_input: the inputs of the network, a size for one image of noise, or a loader of batches, whose images
            count together.
        grid: sides of the grid of tokens, without leading tokens. By default the run of the network shows them.
            Otherwise they are inferred: a square, or the grid of another layer divided by one ratio along each axis.
        extra_tokens: number of leading tokens that are not pixels, for all layers or by name; by default as in the run.
        replace: whether and how to replace the attention of each head, to measure its effect on half of the images: by
            its mean over images ("mean"), its mean by displacement ("position"), the nearest shift ("shift") or uniform
            attention ("uniform"). This takes two or three runs of the network per head.
        replaced_heads: the heads to replace, as numbers by name of layer. They are replaced one by one and all at once.
            For comparison, as many random heads are replaced at once. By default every head is replaced, one by one.
        labels: the class of each image, an integer from 0. Effects then include the cross entropy and the accuracy.
        only, skip: patterns of names of layers to measure, and of layers to leave out.
        memory_limit: bytes of temporary arrays.
        progress: called before each layer with its number from 1, the number of layers, and its name.
    Raises:
        UsageError: `model` is not attention (C2A502) or has no grid (C2A503); no layer attends (C2A501) or has such a
            name (C2A008); heads are to be replaced without a network or with fewer than four images, or labels are not
            classes of the output (C2A006); heads or labels are passed without `replace` (C2A004).
    Examples:
        >>> import conv2attn, torch
        >>> layer = conv2attn.convert(torch.nn.Conv2d(3, 4, 3, padding=1))
        >>> facts = conv2attn.heads(layer, grid=(6, 7)).layers[0]
        >>> facts.heads[0].kind, facts.heads[0].peak, facts.heads[0].peak_mass
        ('shift', (-1, -1), 1.0)
    """
    if replace is None and (replaced_heads is not None or labels is not None):
        raise UsageError("C2A004", "replaced_heads or labels came without replace", "Pass replace too, or neither.")
    if not isinstance(model, nn.Module):
        check_images(model)
    replacing = None if replace is None else Replacing(model, example_input, replace, replaced_heads, labels)
    asked = ask_attention(model, example_input, grid, Selection.of(only, skip))
    reads = (asked if replacing is None else dataclasses.replace(asked, inputs=replacing.batches)).reads()
    if replacing is not None:
        replacing.check(reads)
    facts = list[LayerFacts]()
    # The attention of two layers may not fit into memory, so one is dropped before the next is read. `enumerate` would
    # keep a reference to it.
    for read in reads:
        if progress is not None:
            progress(len(facts) + 1, len(reads), read.name)
        rows = rows_of_read(read, grid, extra_tokens, reads.counts, memory_limit)
        if isinstance(rows, Unread):
            if replacing is not None:
                replacing.refuse(read.name, rows.reason)
            facts.append(LayerFacts(read.name, unread=rows.reason, replay=read.replay, notes=read.notes))
            continue
        windows = None if read.tokens is None or grid is not None else read.tokens.windows
        measured = facts_of(rows, windows, read.weights)
        notes = (*rows.notes, *read.notes)
        layer = msgspec.structs.replace(measured, replay=read.replay, notes=notes)
        facts.append(layer if replacing is None else replacing.layer(layer, read, rows))
        del read, rows
    without = isinstance(model, nn.Module) and example_input is None and any(layer.unread for layer in facts)
    return HeadsReport(
        tuple(facts),
        needed=f"example_input={wanted_inputs(model)[0]}" if without else "",
        inputs=asked.header,
        together=None if replacing is None else replacing.together(),
    )


def facts_of(rows: AttentionRows, windows: Windows | None, weights: tuple[Tensor, Tensor | None] | None) -> LayerFacts:
    """The facts of one layer."""
    grid = rows.grid if windows is None else windows.grid
    parts = sums_of(rows, windows)
    total = reduce(Sums.__add__, parts)
    estimates = estimated(parts, lambda sums: shares(sums, rows.by_position))
    # All replicates use the peak of all images, so the error is that of the attention at one fixed displacement.
    peaks = total.mass.sum(0).reshape(rows.heads, -1).argmax(-1)
    masses = estimated(parts, lambda sums: mass_at(sums, peaks))
    named = {"relative": estimates[:, 0], "absolute": estimates[:, 1], "content": estimates[:, 2]}
    named |= {name: estimated(parts, estimate) for name, estimate in estimates_of_heads().items()}
    heads_measured = tuple(
        head_facts(head, total, named | {"peak_mass": masses}, int(peaks[head])) for head in range(rows.heads)
    )
    covered = estimated(parts, of_patterns(coverage))
    return LayerFacts(
        rows.name,
        grid.keys,
        total.images,
        grid.queries,
        heads_measured,
        span_facts(parts),
        () if weights is None else nearest_convolutions(rows, parts, weights[0].numpy(), windows),
        Shares(*map(number, estimates[0].mean(-1))),
        Errors(**{name: error_number(replicates.mean(-1)) for name, replicates in named.items()}),
        coverage=number(covered[0]),
        coverage_error=error_number(covered),
        redundant_pairs=redundant_pairs(total),
        mass=total.mass.mean(0) / total.queries,
        bias=None if weights is None or weights[1] is None else weights[1].numpy(),
    )


def mass_at(sums: Sums, places: Array) -> Estimate:
    """The mean attention of each head at the displacement in `places`, over queries and images."""
    mass = sums.mass.reshape(*sums.mass.shape[:2], -1)[:, np.arange(len(places)), places]
    return lambda left_out: mean_of(mass, left_out) / sums.queries


def head_facts(head: int, sums: Sums, estimates: Mapping[str, Array], peak: int) -> HeadFacts:
    """The facts of one head; `estimates` hold arrays (1 + replicates, heads)."""
    values = {name: number(replicates[0, head]) for name, replicates in estimates.items()}
    shares = tuple(values[name] for name in ("relative", "absolute", "content"))
    numbers = values | numbers_of_head(SummedHead(head, sums, shares, peak))
    kind, margin = kind_of(numbers.get, sums.queries)
    errors = Errors(**{name: error_number(replicates[:, head]) for name, replicates in estimates.items()})
    return HeadFacts(head=head, kind=kind, margin=margin, errors=errors, **numbers)


def error_number(replicates: Array) -> float | None:
    """The standard error of a number from its replicates; None if there are none or it is not finite."""
    return number(error_of(replicates))


def span_facts(parts: Sequence[Sums]) -> tuple[SpanFact, ...]:
    """R^2 of the span for every kernel that fits the grid."""
    # All kernels share one estimate, since a replicate factors the heads once for all offsets.
    shape = parts[0].having.shape
    sizes = [(size, step) for size in KERNELS for step in DILATIONS if size > 1 or step == 1]
    sizes = [(size, step) for size, step in sizes if all(step * (size // 2) <= side // 2 for side in shape)]
    kernels = [kernel(size, step, len(shape)) for size, step in sizes]
    reached = estimated(parts, lambda sums: spanned(sums, kernels))
    facts, start, total = [], 0, reduce(Sums.__add__, parts)
    for (size, step), offsets in zip(sizes, kernels, strict=True):
        replicates = reached[:, start : start + len(offsets)]
        start += len(offsets)
        center = float(replicates[0, offsets.index((0,) * len(shape))])
        error = error_number(replicates.mean(-1))
        even = explained_of_uniform(total, offsets)
        chance, (mean, best) = None if even is None else float(even.mean()), (replicates[0].mean(), replicates[0].max())
        facts.append(SpanFact(size, step, center, float(mean), float(best), error, chance))
    return tuple(facts)
