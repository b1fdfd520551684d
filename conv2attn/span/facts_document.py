"""The text of a report on heads, and its plain data; pure functions."""

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from conv2attn.report import Cell, Document, Notes, Table, counted, gathered
from conv2attn.report.document import Part

if TYPE_CHECKING:
    from conv2attn.span.facts import HeadsReport, LayerFacts

SCHEMA = "conv2attn.heads/1"
LONG = ("layer", "head", "peak", "mass", "dist", "keys", "sink", "extra", "rel", "abs", "cont")
SPARE = ("cont", "sink", "abs", "keys", "dist")
LEGEND = (
    "rel, abs, cont: shares of energy that displacement, position, content explain",
    "dist: mean distance; keys: keys in use; sink: most of one key",
    "R2 3x3: reach of 9 shifts (and by chance); conv 3: share of a 3x3 convolution",
)


def three(layer: "LayerFacts") -> Any:
    """The share of a 3x3 kernel that the span reaches; None where the grid is smaller."""
    return next((fact for fact in layer.spans if (fact.kernel_size, fact.dilation) == (3, 1)), None)


FIGURES: dict[str, tuple[Callable[["LayerFacts"], float | None], str]] = {
    "rel": (lambda layer: layer.mean("relative"), ".0%"),
    "abs": (lambda layer: layer.mean("absolute"), ".0%"),
    "cont": (lambda layer: layer.mean("content"), ".0%"),
    "dist": (lambda layer: layer.mean("distance"), ".1f"),
    "keys": (lambda layer: layer.mean("keys_in_use"), ".0f"),
    "sink": (lambda layer: layer.mean("sink"), ".0%"),
    "R2 3x3": (lambda layer: getattr(three(layer), "mean", None), ".0%"),
    "chance": (lambda layer: getattr(three(layer), "baseline", None), ".0%"),
    "conv 3": (lambda layer: next((each.share for each in layer.convolutions if each.size == 3), None), ".0%"),
}
"""Numbers of a layer, and how they are written."""
SHORT = ("layer", "heads", *FIGURES)


def shown(column: str, value: float | None) -> str:
    """A number as it is written in its column."""
    return "-" if value is None else format(value, FIGURES[column][1])


def share(value: float) -> str:
    """A share in percent."""
    return f"{value:.0%}"


def short(layer: "LayerFacts") -> list[Cell]:
    """One line for a layer."""
    if layer.unread:
        return [layer.name, "not read", *[""] * len(FIGURES)]
    return [layer.name, len(layer.heads), *(shown(column, read(layer)) for column, (read, _) in FIGURES.items())]


def long(layer: "LayerFacts") -> list[list[Cell]]:
    """One line for each head."""
    lines: list[list[Cell]] = []
    for head in layer.heads:
        shares = [share(x) for x in (head.sink, head.extra, head.relative, head.absolute, head.content)]
        used = [share(head.peak_mass), f"{head.distance:.1f}", f"{head.keys_in_use:.0f}"]
        lines.append([layer.name, head.head, ",".join(map(str, head.peak)), *used, *shares])
    return lines


def document(report: "HeadsReport", verbose: bool = False) -> Document:
    """How many layers were read, a line for each, and for each head where `verbose`."""
    read = [layer for layer in report.layers if not layer.unread]
    count = sum(len(layer.heads) for layer in read)
    said = f"{report.verdict.value}: {counted(count, 'head')} in {counted(len(read), 'layer')} read"
    said += f"; network {report.read_as}" if report.read_as else ""
    unread = gathered((layer.name, f"was not read: {layer.unread}") for layer in report.layers if layer.unread)
    parts: list[Part] = [Table(SHORT, tuple(tuple(short(layer)) for layer in report.layers), SPARE), Notes(LEGEND)]
    if verbose:
        parts.append(
            Table(LONG, tuple(tuple(line) for layer in report.layers for line in long(layer)), ("extra", *SPARE))
        )
        parts.append(Notes(tuple(line for layer in report.layers for line in remarks(layer))))
    return Document((said,), (*parts, Notes(tuple(unread))), report.verdict)


def remarks(layer: "LayerFacts") -> list[str]:
    """The best kernel of a layer, its nearest convolutions with their bounds, and its notes."""
    lines = [f"{layer.name}: {note}" for note in layer.notes]
    if layer.heads:
        explained = f"{share(layer.mean('relative'))} of the energy, by chance {share(layer.baseline)}"
        lines.append(f"{layer.name}: displacement explains {explained}")
    if layer.best is not None:
        best = layer.best
        size = f"K = {best.kernel_size}, dilation {best.dilation}"
        figures = f"R2 {best.center:.2f} centre, {best.mean:.2f} mean, {best.best:.2f} best; chance {best.baseline:.2f}"
        lines.append(f"{layer.name}: {size}: {figures}")
    for found in layer.convolutions:
        bound = f"|layer - conv| <= {found.error:.3g} max|x|"
        shares = f"{found.share:.1%}, by chance {found.chance:.1%}"
        lines.append(f"{layer.name}: the nearest convolution of K = {found.size} explains {shares}; {bound}")
    return lines


def records(report: "HeadsReport") -> list[dict[str, Any]]:
    """One record for each head of each layer."""
    found = []
    for layer in report.layers:
        for head in layer.heads:
            body = asdict(head)
            body["peak"] = " ".join(map(str, head.peak))
            found.append({"layer": layer.name, **body})
    return found


def to_dict(report: "HeadsReport") -> dict[str, Any]:
    """The report for a program; taps of convolutions are left to `recover`."""
    layers = []
    for layer in report.layers:
        convolutions = [
            {"kernel_size": c.size, "share": c.share, "chance": c.chance, "error": c.error} for c in layer.convolutions
        ]
        body: dict[str, Any] = {"name": layer.name, "grid": list(layer.grid), "images": layer.images}
        body |= {"heads": [asdict(head) for head in layer.heads], "spans": [asdict(fact) for fact in layer.spans]}
        body |= {"baseline": layer.baseline, "convolutions": convolutions, "unread": layer.unread}
        layers.append({**body, "notes": list(layer.notes)})
    whole = {"schema": SCHEMA, "verdict": report.verdict.value, "exit_code": report.exit_code, "layers": layers}
    return {**whole, "read_as": report.read_as}
