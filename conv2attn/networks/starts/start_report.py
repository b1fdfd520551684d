"""The report of a start: a row for each head, with its attention beside the quadratic head's."""

from dataclasses import dataclass
from typing import ClassVar, final

from conv2attn.report import Document, Notes, Report, Table, counted, document


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
