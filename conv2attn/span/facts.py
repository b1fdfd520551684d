"""Facts of each head of any attention, in numbers: `conv2attn.heads`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from torch import nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.basis import Offset, Sides
from conv2attn.errors import UsageError
from conv2attn.models import attention_layers
from conv2attn.models.capture import NamedAttention, call, capture
from conv2attn.models.positions import PositionAttention, Unread, position_attention
from conv2attn.models.positions.reading import position_part
from conv2attn.models.response import matrices_by_response
from conv2attn.models.values import matrices_of
from conv2attn.report import Document, Report
from conv2attn.span import facts_document
from conv2attn.span.conditions.problem import Array
from conv2attn.span.measures import (
    DILATIONS,
    KERNELS,
    Masses,
    NearestConvolution,
    kernel,
    masses,
    nearest_convolutions,
)
from conv2attn.span.positions import as_layers, unread_if_apart
from conv2attn.span.questions import axes, rows_of
from conv2attn.span.sources.arguments import as_sides
from conv2attn.span.sources.grids import sides_among
from conv2attn.span.sources.prefix import leading_in, prefix_of
from conv2attn.span.sources.reading import MEMORY_LIMIT
from conv2attn.verdicts import Strength, Verdict


@final
@dataclass(frozen=True)
class HeadFacts:
    """One head. `relative`, `absolute` and `content` are shares of its centred energy that sum to 1.

    `peak` is its most used displacement and `peak_mass` the attention to it, over all queries; `distance` the mean
    attention distance in pixels; `keys_in_use` exp of the mean entropy; `largest` the mean of the largest entry; `sink`
    the attention that one key has of all queries; `extra` the attention to tokens that are no pixels.
    """

    head: int
    peak: Offset
    peak_mass: float
    distance: float
    keys_in_use: float
    largest: float
    sink: float
    extra: float
    relative: float
    absolute: float
    content: float


@final
@dataclass(frozen=True)
class SpanFact:
    """R^2 of the heads' span over the offsets of a kernel: of its centre, their mean and the best one; and the mean
    that is to be expected of heads whose keys are shuffled in each row, hence of the same entropy."""

    kernel_size: int
    dilation: int
    center: float
    mean: float
    best: float
    baseline: float


@final
@dataclass(frozen=True, eq=False)
class LayerFacts:
    """One layer: its heads, what their span reaches, and the convolutions nearest to it, where its weights are read.

    `baseline` is the relative share to be expected of heads with shuffled keys; `mass` is attention by displacement,
    over all queries, (heads, *(2 side - 1)). A layer that is `unread` has none of it. `grid` is that of the keys;
    convolutions act on it, with a stride where `queries` skip keys, and serve all queries of a cell of pooled keys.
    """

    name: str
    grid: Sides
    images: int
    queries: Sides = ()
    heads: tuple[HeadFacts, ...] = ()
    spans: tuple[SpanFact, ...] = ()
    baseline: float = 0.0
    convolutions: tuple[NearestConvolution, ...] = ()
    bias: Array | None = None
    mass: Array | None = None
    unread: str = ""
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> SpanFact | None:
        """The kernel of more than one offset that the span reaches farthest above its baseline."""
        wide = [fact for fact in self.spans if fact.kernel_size > 1]
        return max(wide, key=lambda fact: fact.mean - fact.baseline, default=None)

    def mean(self, name: str) -> float:
        """The mean of a number over the heads."""
        return float(np.mean([getattr(head, name) for head in self.heads]))


@final
@dataclass(frozen=True, repr=False)
class HeadsReport(Report):
    """Facts of the heads of each layer: numbers, no verdict of a claim; `holds` where every layer was read.

    `read_as` is what was assumed of the file of the network, in words.
    """

    layers: tuple[LayerFacts, ...]
    read_as: str = ""

    @property
    def verdict(self) -> Verdict:
        """Unsupported where a layer was not read, undecided where there is none."""
        if not self.layers:
            return Verdict.UNDECIDED
        return Verdict.UNSUPPORTED if any(layer.unread for layer in self.layers) else Verdict.HOLDS

    @property
    def strength(self) -> Strength:
        """Facts about the images given are samples."""
        return Strength.SAMPLED

    @property
    def exit_code(self) -> int:
        """0 where every layer was read, otherwise 3."""
        return self.verdict.exit_code

    def document(self, verbose: bool = False) -> Document:
        """A line for each layer, and for each head where `verbose`."""
        return facts_document.document(self, verbose)

    def to_dict(self) -> dict[str, Any]:
        """Plain data; taps of convolutions are left to `recover`."""
        return facts_document.to_dict(self)

    def records(self) -> list[dict[str, Any]]:
        """One record for each head of each layer."""
        return facts_document.records(self)


def heads(
    model: Any,
    inputs: Any = None,
    *,
    grid: Sequence[int] | int | None = None,
    extra_tokens: int | Mapping[str, int] | None = None,
    memory_limit: int = MEMORY_LIMIT,
    progress: Callable[[int, int, str], None] | None = None,
) -> HeadsReport:
    """Graded facts of each head of each layer, from one pass over its attention and one for convolutions.

    Args:
        model: a network, whose attention on `inputs` is captured, or without inputs read by position alone; a layer of
            this project; an array (heads, queries, keys) or (images, heads, queries, keys); or a mapping of names.
        inputs: what the network takes.
        grid: sides of the tokens, behind the leading ones of the network. Inferred where they are a square, or where
            layers of a network have as many times fewer along each axis as one that has these.
        extra_tokens: leading tokens that are no pixels, of all layers or by name; as the network says by default.
        memory_limit: bytes of temporary arrays.
        progress: called before each layer with its number from 1, the number of layers, and its name.
    Raises:
        UsageError: not attention (C2A502), nothing attends (C2A501), or no grid (C2A503).
    Examples:
        >>> import conv2attn, torch
        >>> layer = conv2attn.convert(torch.nn.Conv2d(3, 4, 3, padding=1))
        >>> facts = conv2attn.heads(layer, grid=(6, 7)).layers[0]
        >>> facts.heads[0].peak, facts.heads[0].peak_mass
        ((-1, -1), 1.0)
    """
    network = model if isinstance(model, nn.Module) else None
    found = layers_of(model, inputs, grid)
    known = prefix_of(network) if extra_tokens is None else extra_tokens
    facts = []
    for place, (name, given) in enumerate(found.items(), 1):
        if progress is not None:
            progress(place, len(found), name)
        own = isinstance(given, MultiHeadSelfAttention | PositionAttention | Unread)
        extra = 0 if own else known.get(name, 0) if isinstance(known, Mapping) else known
        if extra_tokens is None and extra and not own:
            extra = leading_in(given.shape[-1], extra, grid)
        sides = sides_among(as_sides(grid, axes(grid)), given, extra, found.values())
        layer = unread_if_apart(given, sides, axes(grid), extra)
        if isinstance(layer, Unread):
            facts.append(LayerFacts(name, (), 0, unread=layer.reason))
            continue
        sides = None if isinstance(layer, PositionAttention) else sides
        read = facts_of(name, layer, sides, extra, memory_limit, network, inputs)
        facts.append(replace(read, notes=(*read.notes, found.notes[name])) if name in found.notes else read)
    return HeadsReport(tuple(facts))


def layers_of(model: Any, inputs: Any, grid: Sequence[int] | int | None) -> NamedAttention:
    """The attention of a model by name: captured on inputs, otherwise by position alone.

    Raises:
        UsageError: inputs beside what is attention already (C2A004).
    """
    if isinstance(model, nn.Module):
        if inputs is not None:
            own = {name or "(root)": layer for name, layer in attention_layers(model).items() if not layer.has_content}
            grids, seen = sides_seen(model, own, inputs), capture(model, inputs)
            return NamedAttention(
                {name or "(root)": grids.get(name or "(root)", each) for name, each in seen.items()}, seen.notes
            )
        return NamedAttention(position_attention(model, as_sides(grid, 2)))
    if inputs is not None:
        raise UsageError("C2A004", f"a {type(model).__name__} takes no inputs", "Leave them out.")
    return as_layers(model)


def sides_seen(network: nn.Module, layers: Mapping[str, MultiHeadSelfAttention], inputs: Any) -> dict[str, Any]:
    """Layers of this project that read no content, by position alone on the grids that they meet on these inputs."""
    found: dict[str, Any] = {}
    if not layers:
        return found
    names = {layer: name for name, layer in layers.items()}

    def keep(layer: nn.Module, given: Any) -> None:
        assert isinstance(layer, MultiHeadSelfAttention)
        found[names[layer]] = position_part(layer, tuple(given[0].shape[2:]))

    handles = [layer.register_forward_pre_hook(keep) for layer in layers.values()]
    try:
        with torch.no_grad():
            call(network, inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found


def facts_of(
    name: str,
    layer: Any,
    grid: Sequence[int] | int | None,
    extra: int,
    memory_limit: int,
    network: nn.Module | None,
    inputs: Any = None,
) -> LayerFacts:
    """The facts of one layer; its values are read off its weights, or off its response to `inputs`."""
    dimensions = layer.dimensions if isinstance(layer, MultiHeadSelfAttention) else axes(grid)
    rows = rows_of(name, layer, grid, dimensions, extra, memory_limit)
    dimensions, seen = len(rows.grid.keys), masses(rows)
    shares = seen.shares
    facts = []
    for head in range(rows.heads):
        mass = seen.mass[head]
        place = np.unravel_index(int(mass.argmax()), mass.shape)
        peak = tuple(int(at) - side // 2 for at, side in zip(place, mass.shape, strict=True))
        figures = (mass.max() / seen.rows, seen.distance[head], np.exp(seen.entropy[head]), seen.largest[head])
        others = (seen.sink[head], seen.extra[head], *shares[:, head])
        facts.append(HeadFacts(head, peak, *map(float, (*figures, *others))))
    spans = [span_fact(seen, size, step, dimensions) for size in KERNELS for step in DILATIONS if size > 1 or step == 1]
    matrices, notes = matrices_of(network, name) if network is not None else own_matrices(layer), rows.notes
    if matrices is None and network is not None and inputs is not None:
        matrices = matrices_by_response(network, name, inputs, rows.heads)
        notes = notes if matrices is None else (*notes, "its values and outputs were read by its response")
    found: tuple[NearestConvolution, ...] = ()
    if matrices is None:
        notes = (*notes, "its values and outputs were not read: no nearest convolution")
    else:
        found = nearest_convolutions(rows, seen, matrices[0].numpy())
    bias = None if matrices is None or matrices[1] is None else matrices[1].numpy()
    kept = tuple(fact for fact in spans if fact is not None)
    baseline = float(seen.relative_by_chance.mean())
    grids = (name, rows.grid.keys, rows.images, rows.grid.queries)
    return LayerFacts(*grids, tuple(facts), kept, baseline, found, bias, seen.mass / seen.rows, notes=tuple(notes))


def own_matrices(layer: Any) -> Any:
    """The matrices of a layer of this project that stands alone; None of an array."""
    return matrices_of(layer, "") if isinstance(layer, MultiHeadSelfAttention) else None


def span_fact(seen: Masses, size: int, step: int, axes: int) -> SpanFact | None:
    """R^2 of one kernel; None where it is wider than the grid."""
    if any(step * (size // 2) > side // 2 for side in seen.having.shape):
        return None
    offsets = kernel(size, step, axes)
    reached, by_chance = seen.spanned(offsets), seen.spanned_by_chance(offsets)
    center = float(reached[offsets.index((0,) * axes)])
    return SpanFact(size, step, center, float(reached.mean()), float(reached.max()), float(by_chance.mean()))
