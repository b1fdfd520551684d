"""The work of `check-span`, between its options and the report."""

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from conv2attn import plots
from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.basis import Sides
from conv2attn.checkpoints.options import Reading
from conv2attn.checkpoints.writing import write_text_atomically
from conv2attn.cli.progress import progress
from conv2attn.cli.span_files import Part, arrays, attention_in, network_in, positions_in
from conv2attn.errors import UsageError
from conv2attn.models.capture import NamedAttention
from conv2attn.models.positions import PositionAttention, Unread
from conv2attn.models.provenance import assumed_of
from conv2attn.span import SpanReport, SpanRow, check_span
from conv2attn.span.certificate import certificates
from conv2attn.span.questions import rows_of
from conv2attn.span.sources.reading import MEMORY_LIMIT

ON_PIXELS = MultiHeadSelfAttention | PositionAttention | Unread
"""Kinds of layers whose tokens are all pixels."""


def check_file(
    path: str,
    *,
    kernel_size: str,
    dilation: int,
    offsets: str | None,
    grid: str | None,
    inputs: str | None,
    reading: Reading,
    extra_tokens: int | None = None,
    position_only: bool = False,
    only: Sequence[str] = (),
    plot: str | None = None,
    certificate: str | None = None,
    force: bool = False,
    **limits: Any,
) -> SpanReport:
    """The report on all attention in a file, and a picture of it in the file `plot`, if any.

    Raises:
        UsageError: content-dependent attention without inputs (C2A004), an option that cannot be read (C2A006), or no
            matplotlib for a picture (C2A003).
        CheckpointError: the file cannot be read, or the picture cannot be written.
    """
    if plot:
        plots.check_drawable(plot)
    sizes = numbers(kernel_size, "--kernel-size")
    asked = {
        "kernel_size": sizes[0] if len(sizes) == 1 else sizes,
        "dilation": dilation,
        "offsets": None if offsets is None else parse_offsets(offsets),
        **limits,
    }
    sides = numbers(grid, "--grid") if grid else None
    network = None if position_only and inputs else network_in(path, inputs, reading)
    if position_only and network is None:
        found = "--inputs" if inputs else "an array"
        raise UsageError("C2A004", f"--position-only reads parameters, and {found} has none", "Leave out one of both.")
    if network is None:
        parts = [Part(NamedAttention(arrays(path)), sides)]
    else:
        parts = positions_in(network, sides) if position_only else attention_in(network, path, sides, inputs, reading)
    parts = [replace(part, layers=chosen(part.layers, only)) for part in parts]
    if not any(part.layers for part in parts):
        raise UsageError("C2A008", f"--only {' '.join(only)} fits no layer of {path}")
    ours = [name for part in parts for name, given in part.layers.items() if isinstance(given, ON_PIXELS)]
    if extra_tokens and ours:
        raise UsageError("C2A004", f"{ours[0]} attends to pixels alone", "Leave out --extra-tokens.")
    if extra_tokens is not None:
        parts = [replace(part, extra=dict.fromkeys(part.layers, extra_tokens)) for part in parts]
    with progress() as shown:
        reports = [
            check_span(part.layers, grid=part.sides, extra_tokens=part.extra, progress=shown, **asked) for part in parts
        ]
    read = [(part, row) for report, part in zip(reports, parts, strict=True) for row in report.rows if row.heads]
    if plot:
        layers = [
            plots.heads_around(row.name, part.layers[row.name], sides_of(part, row), part.extra.get(row.name, 0))
            for part, row in read
        ]
        plots.write(plots.draw(layers), plot, force)
    if certificate:
        memory, exact = limits.get("memory_limit", MEMORY_LIMIT), bool(limits.get("exact"))
        texts = []
        for part, row in read:
            given = (part.layers[row.name], sides_of(part, row), len(row.grid), part.extra.get(row.name, 0))
            texts.append(certificates(row, rows_of(row.name, *given, memory, None, exact)))
        write_text_atomically(certificate, "".join(texts), force)
    rows = tuple(row for report in reports for row in report.rows)
    assumed = assumed_of(network)
    return SpanReport(rows, reports[0].asked + (f"; network {assumed}" if assumed else ""))


def sides_of(part: Part, row: SpanRow) -> Sides:
    """The grid on which a row was judged, as `check_span` takes it: of a layer of this project that of its input."""
    ours = isinstance(part.layers[row.name], MultiHeadSelfAttention)
    return part.sides if ours and part.sides is not None else row.grid


def chosen(part: NamedAttention, only: Sequence[str]) -> NamedAttention:
    """The layers whose names fit a pattern, all without one."""
    kept = {name: held for name, held in part.items() if not only or any(fnmatchcase(name, each) for each in only)}
    return NamedAttention(kept, part.notes)


def numbers(text: str, option: str) -> tuple[int, ...]:
    """`14x14` as numbers; one number stands alone.

    Raises:
        UsageError: they are not positive integers with an x between them (C2A006).
    """
    parts = text.lower().split("x")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError("C2A006", f"{option} {text} is not positive integers with an x between them")
    return tuple(int(part) for part in parts)


def parse_offsets(text: str) -> list[tuple[int, ...]]:
    """`0,-1 0,0 0,1` as offsets.

    Raises:
        UsageError: it is not integers, separated by commas within an offset and by blanks between them (C2A006).
    """
    try:
        found = [tuple(int(number) for number in offset.split(",")) for offset in text.split()]
    except ValueError:
        found = []
    if not found:
        raise UsageError("C2A006", f"--offsets {text!r} is not offsets", "Write '0,-1 0,0 0,1', say.")
    return found
