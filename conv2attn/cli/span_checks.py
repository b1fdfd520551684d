"""The work of `check-span`, and of `recheck` on its certificates, between their options and the report."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from conv2attn import plots
from conv2attn.arguments import Patterns
from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.checkpoints.atomic_files import write_text_atomically
from conv2attn.checkpoints.reading_options import Reading
from conv2attn.cli.head_files import arrays, inputs_for, network_in, numbers, told_of
from conv2attn.errors import CheckpointError, UsageError
from conv2attn.models.capture import NamedAttention
from conv2attn.models.positions import PositionAttention, Unread
from conv2attn.models.provenance import assumed_of
from conv2attn.report.progress import progress
from conv2attn.span import SpanReport, check_span
from conv2attn.span.certificate import MARK, Rechecked, certificates, recheck
from conv2attn.span.reading import layers_of, needs_inputs, read_one
from conv2attn.span.rows import AttentionRows

ON_PIXELS = MultiHeadSelfAttention | PositionAttention
"""Kinds of layers whose tokens are all pixels."""
BEGINNING = 2**20
"""Bytes of a file in which a certificate of `check-span` begins."""
LARGEST = 2**30
"""Bytes of certificates that are read: a thousand times those of a layer of 256 tokens that is refuted."""


def attention_in(
    path: str,
    grid: tuple[int, ...] | None,
    inputs: str | None,
    input_size: str | None,
    reading: Reading,
    only: Patterns = (),
    position_only: bool = False,
) -> tuple[NamedAttention, nn.Module | None]:
    """All attention in a file by name, and its network, if it is one.

    Raises:
        UsageError: attention that depends on inputs, without them (C2A502), or positions alone of arrays or inputs
            (C2A004).
    """
    network = None if position_only and inputs else network_in(path, inputs, reading)
    if position_only and network is None:
        found = "--inputs" if inputs else "an array"
        raise UsageError("C2A004", f"--position-only reads parameters, and {found} has none", "Leave out one of both.")
    if network is None:
        return layers_of(arrays(path), only=only), None
    if not inputs and not position_only:
        needs_inputs(network)
    images: Tensor | None = inputs_for(network, inputs, input_size, reading)[0] if inputs else None
    with told_of(network, images) if images is not None else nullcontext():
        found_layers = layers_of(network, images, grid, only, position_only)
    own = {name for name, each in found_layers.items() if isinstance(each, MultiHeadSelfAttention)}
    if grid is None and not own <= found_layers.tokens.keys():
        raise UsageError("C2A005", "nothing says how large the grid is", "Pass --grid.")
    return found_layers, network


def check_file(
    path: str,
    *,
    kernel_size: str,
    dilation: int,
    offsets: str | None,
    grid: str | None,
    inputs: str | None,
    input_size: str | None,
    reading: Reading,
    extra_tokens: int | None = None,
    position_only: bool = False,
    only: Patterns = (),
    plot: str | None = None,
    certificate: str | None = None,
    force: bool = False,
    **limits: Any,
) -> SpanReport:
    """The report on all attention in a file, a picture of it in the file `plot`, and certificates, if asked for.

    Raises:
        UsageError: an option that cannot be read (C2A006), or no matplotlib for a picture (C2A003).
        CheckpointError: the file cannot be read, or the picture cannot be written.
    """
    sizes, sides = numbers(kernel_size, "--kernel-size", "3 or 3x5"), numbers(grid, "--grid") if grid else None
    asked = {
        "kernel_size": sizes[0] if len(sizes) == 1 else sizes,
        "dilation": dilation,
        "offsets": None if offsets is None else parse_offsets(offsets),
        **limits,
    }
    layers, network = attention_in(path, sides, inputs, input_size, reading, only, position_only)
    if extra_tokens and (alone := [name for name, each in layers.items() if isinstance(each, ON_PIXELS)]):
        raise UsageError("C2A004", f"{alone[0]} attends to pixels alone", "Leave out --extra-tokens.")
    with progress() as shown:
        report = check_span(layers, grid=sides, extra_tokens=extra_tokens, progress=shown, **asked)
    read = rows_in(layers, sides, extra_tokens, [row.name for row in report.rows if row.heads], **limits)
    if plot:
        drawn = [
            plots.heads_around(name, layers[name], sides_of(name, layers, sides) or rows.grid.keys, rows.extra)
            for name, rows in read.items()
        ]
        plots.write(plots.draw_heads(drawn), plot, force)
    if certificate:
        text = certificates(report, read, limits.get("eps"), limits.get("max_phi"))
        write_text_atomically(certificate, text, force)
    assumed = assumed_of(network)
    return SpanReport(report.rows, report.asked + (f"; network {assumed}" if assumed else ""))


def sides_of(name: str, layers: NamedAttention, grid: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The sides of the inputs of a layer of this project, whose keys may be padded; None of other attention."""
    if not isinstance(layers[name], MultiHeadSelfAttention):
        return None
    return layers.tokens[name].sides if name in layers.tokens else grid


def rows_in(
    layers: NamedAttention,
    sides: tuple[int, ...] | None,
    extra_tokens: int | None,
    names: Sequence[str],
    memory_limit: int = 2**29,
    exact: bool = False,
    **_: Any,
) -> dict[str, AttentionRows]:
    """The rows of these layers."""
    found = {}
    for name in names:
        read = read_one(name, layers[name], layers, sides, extra_tokens, memory_limit, exact=exact)
        if not isinstance(read, Unread):
            found[name] = read[0]
    return found


def is_span_certificate(path: str) -> bool:
    """Whether a regular file holds certificates of `check-span`, and not of `verify`."""
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as file:
            return any(line.startswith(MARK.encode()) for line in file.read(BEGINNING).splitlines())
    except (OSError, ValueError):
        return False


def recheck_file(
    path: str,
    model: str | None,
    *,
    grid: str | None,
    inputs: str | None,
    input_size: str | None,
    reading: Reading,
    extra_tokens: int | None,
    position_only: bool,
    exact: bool,
) -> Rechecked:
    """The certificates of `check-span` in a file against the model or array that they speak of.

    Raises:
        UsageError: no such file is named (C2A004).
        CheckpointError: one cannot be read, or the certificates are larger than `LARGEST` (C2A307).
    """
    if (size := Path(path).stat().st_size) > LARGEST:
        raise CheckpointError(
            "C2A307",
            f"{path} has {size:,} bytes, more than {LARGEST:,}",
            "Check that it is a certificate of check-span.",
        )
    if model is None:
        raise UsageError("C2A004", f"{path} is about attention in another file", "Name it: recheck CERTIFICATE MODEL.")
    sides = numbers(grid, "--grid") if grid else None
    layers, _ = attention_in(model, sides, inputs, input_size, reading, (), position_only)
    read = rows_in(layers, sides, extra_tokens, list(layers), exact=exact)
    return recheck(Path(path).read_text(encoding="utf-8"), read)


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
