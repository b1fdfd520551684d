"""The report of a start: a row for each head, with its attention beside the quadratic head's."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from conv2attn.errors import UnsupportedError
from conv2attn.networks.capture import Captured
from conv2attn.networks.positions.position_rules import Unread
from conv2attn.networks.starts import kernel
from conv2attn.report import Document, Notes, Report, Table, counted, document

ROUNDING = 1e-3
"""Largest rounding error of one attention weight on noise, in float32: scores of size 50 are off by 1e-5 each."""


@final
@dataclass(frozen=True)
class StartedHead:
    """One head that begins as a soft shift.

    Args:
        offset: key - query that it attends to most.
        alpha: its sharpness, in inverse squared tokens.
        mass: its attention at the offset on tokens of noise, the mean over images and queries whose target is on the
            grid.
        quadratic: that of the quadratic head of this sharpness.
        bound: the most by which the attention of such a query is below the quadratic head's, by formula: of the cosine
            kernel, and of the norms of the tokens of noise.
        peaked: the share of such queries that attend to no other token more.
    """

    layer: str
    head: int
    offset: tuple[int, ...]
    alpha: float
    mass: float
    quadratic: float
    bound: float
    peaked: float


def started_heads(
    name: str,
    attention: Captured,
    offsets: Sequence[tuple[int, ...]],
    alpha: float,
    sides: Sequence[int],
    expected: Sequence[Tensor] | None = None,
) -> Iterator[StartedHead]:
    """A row for each head of a layer, from its attention (images, heads, queries, keys), leading tokens first.

    Args:
        expected: the attention of each head by formula, (images or 1, queries of the grid, keys); without it the bound
            is what the attention itself falls short.
    Raises:
        UnsupportedError: the attention is not seen, or not the expected one up to rounding (C2A604).
    """
    tokens = math.prod(sides)
    if not isinstance(attention, Tensor) or attention.shape[1] != len(offsets) or attention.shape[-2] < tokens:
        found = attention.reason if isinstance(attention, Unread) else f"{attention.shape[1]} of {attention.shape[-2]}"
        raise UnsupportedError(
            "C2A604",
            f"{name}: its attention is not one of {len(offsets)} heads of {tokens} queries ({found})",
            "Name the number of heads, parts=Parts(heads=...), if another was read, or take another network.",
        )
    computed = attention.cpu().double()[:, :, -tokens:]
    for head, offset in enumerate(offsets):
        target = computed[:, head] if expected is None else expected[head]
        if target.shape[1:] != computed.shape[2:] or not (computed[:, head] - target).abs().max() <= ROUNDING:
            reason = f"{name}: head {head} attends elsewhere than its queries and keys were set for"
            remedy = "Layers that turn or norm queries and keys, or mix heads, are not covered."
            raise UnsupportedError("C2A604", reason, remedy)
        quadratic = kernel.attention_at_offset(kernel.quadratic(sides, offset, alpha).softmax(-1), sides, offset)
        most = computed[:, head].amax(-1, keepdim=True).expand(-1, -1, tokens)
        mass, least, largest = (
            kernel.attention_at_offset(each[..., -tokens:], sides, offset) for each in (computed[:, head], target, most)
        )
        bound = float((quadratic - least).max().clamp(min=0)) + (0.0 if expected is None else ROUNDING)
        peaked = float((mass == largest).double().mean())
        yield StartedHead(name, head, tuple(offset), alpha, float(mass.mean()), float(quadratic.mean()), bound, peaked)


@final
@dataclass(frozen=True, repr=False)
class Start(Report):
    """The result of `start_at_convolution`.

    Args:
        heads: a row for each head.
        channels: position channels, the first ones of the width; 0 where positions were kept or tables of biases set.
        frequencies: per axis.
        silenced: modules that write nothing into the position channels at the start.
        notes: what was left alone, and why; what positions that were kept cannot tell apart.
    """

    schema: ClassVar[str] = "conv2attn.start/1"
    heads: tuple[StartedHead, ...]
    channels: int = 0
    frequencies: int = 0
    silenced: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@document.register
def _(start: Start, verbose: bool = False) -> Document:
    """A row for each head."""
    layers = len({head.layer for head in start.heads})
    summary = f"{counted(len(start.heads), 'head')} in {counted(layers, 'layer')} begin as shifts"
    columns = ("layer", "head", "offset", "alpha", "mass", "quadratic", "bound")
    rows = tuple(
        (h.layer, h.head, ",".join(map(str, h.offset)), h.alpha, h.mass, h.quadratic, h.bound) for h in start.heads
    )
    waves = f"{start.channels} position channels, which begin without content: {start.frequencies} waves an axis"
    blurred = [head.peaked for head in start.heads if head.peaked < 1]
    elsewhere = (
        f"at {counted(len(blurred), 'head')} up to {1 - min(blurred, default=1.0):.0%} of the queries attend more to "
        "another token than to the one at the offset"
        + ("; more waves serve more of them: wider heads and a larger alpha" if start.channels else "")
    )
    notes = (*start.notes, *([elsewhere] if blurred else []), *([waves] if start.channels else []))
    return Document((summary,), (Table(columns, rows), *([Notes(notes)] if notes else [])))
