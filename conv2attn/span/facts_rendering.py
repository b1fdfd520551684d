"""Facts of heads as text, Markdown, JSON and CSV; pure functions."""

import csv
import io
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from conv2attn.tables import Cell, markdown_table, text_table

if TYPE_CHECKING:
    from conv2attn.span.facts import HeadsReport, LayerFacts

SCHEMA = "conv2attn.heads/1"
SHORT = ("layer", "heads", "rel", "abs", "cont", "dist", "keys", "sink", "R2 3x3", "chance", "conv 3")
LONG = ("layer", "head", "peak", "mass", "dist", "keys", "sink", "extra", "rel", "abs", "cont")
LEGEND = (
    "rel, abs, cont: shares of the energy of attention that displacement, position and",
    "content explain. dist: mean distance. keys: keys in use. sink: most of one key.",
    "R2 3x3: what the span reaches of 9 shifts, and by chance. conv 3: share of the",
    "layer's map that one 3x3 convolution explains.",
)


def share(value: float | None) -> str:
    """A share in percent."""
    return "-" if value is None else f"{100 * value:.0f}%"


def short(layer: "LayerFacts") -> list[Cell]:
    """One line for a layer."""
    name = layer.name if len(layer.name) <= 16 else "…" + layer.name[-15:]
    if layer.unread:
        return [name, "not read", *[""] * (len(SHORT) - 2)]
    three = next((fact for fact in layer.spans if (fact.kernel_size, fact.dilation) == (3, 1)), None)
    nearest = next((found.share for found in layer.convolutions if found.size == 3), None)
    shares = [share(layer.mean(kind)) for kind in ("relative", "absolute", "content")]
    used = [f"{layer.mean('distance'):.1f}", f"{layer.mean('keys_in_use'):.0f}", share(layer.mean("sink"))]
    reached = [share(three.mean if three else None), share(three.baseline if three else None)]
    return [name, len(layer.heads), *shares, *used, *reached, share(nearest)]


def long(layer: "LayerFacts") -> list[list[Cell]]:
    """One line for each head."""
    name = layer.name if len(layer.name) <= 16 else "…" + layer.name[-15:]
    lines: list[list[Cell]] = []
    for head in layer.heads:
        shares = [share(x) for x in (head.sink, head.extra, head.relative, head.absolute, head.content)]
        used = [share(head.peak_mass), f"{head.distance:.1f}", f"{head.keys_in_use:.0f}"]
        lines.append([name, head.head, ",".join(map(str, head.peak)), *used, *shares])
    return lines


def to_text(report: "HeadsReport", details: bool = False) -> str:
    """The report for a terminal, 80 columns."""
    parts = [text_table(SHORT, [short(layer) for layer in report.layers]), "", *LEGEND]
    if details:
        parts += ["", text_table(LONG, [line for layer in report.layers for line in long(layer)]), ""]
        parts += [line for layer in report.layers for line in remarks(layer)]
    parts += [f"{layer.name} was not read: {layer.unread}" for layer in report.layers if layer.unread]
    return "\n".join(parts) + "\n"


def remarks(layer: "LayerFacts") -> list[str]:
    """The best kernel of a layer, its nearest convolutions with their bounds, and its notes."""
    lines = [f"{layer.name}: {note}" for note in layer.notes]
    if layer.best is not None:
        best = layer.best
        size = f"K = {best.kernel_size}, dilation {best.dilation}"
        figures = f"R2 {best.center:.2f} centre, {best.mean:.2f} mean, {best.best:.2f} best; chance {best.baseline:.2f}"
        lines.append(f"{layer.name}: {size}: {figures}")
    for found in layer.convolutions:
        bound = f"|layer - conv| <= {found.error:.3g} max|x|"
        lines.append(f"{layer.name}: the nearest convolution of K = {found.size} explains {found.share:.1%}; {bound}")
    return lines


def to_markdown(report: "HeadsReport") -> str:
    """The report for a document."""
    whole = [markdown_table(SHORT, [short(layer) for layer in report.layers]), ""]
    whole.append(markdown_table(LONG, [line for layer in report.layers for line in long(layer)]))
    notes = [f"- {line}" for layer in report.layers for line in remarks(layer)]
    return "\n".join([*whole, "", *notes]) + "\n"


def records(report: "HeadsReport") -> list[dict[str, Any]]:
    """One record for each head of each layer."""
    found = []
    for layer in report.layers:
        for head in layer.heads:
            body = asdict(head)
            body["peak"] = " ".join(map(str, head.peak))
            found.append({"layer": layer.name, **body})
    return found


def to_csv(report: "HeadsReport") -> str:
    """A line for each head of each layer."""
    lines, rows = io.StringIO(), records(report)
    if rows:
        writer = csv.DictWriter(lines, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return lines.getvalue()


def to_json(report: "HeadsReport") -> str:
    """The report for a program; taps of convolutions are left to `recover`."""
    layers = []
    for layer in report.layers:
        convolutions = [{"kernel_size": c.size, "share": c.share, "error": c.error} for c in layer.convolutions]
        body: dict[str, Any] = {"name": layer.name, "grid": list(layer.grid), "images": layer.images}
        body |= {"heads": [asdict(head) for head in layer.heads], "spans": [asdict(fact) for fact in layer.spans]}
        body |= {"baseline": layer.baseline, "convolutions": convolutions, "unread": layer.unread}
        layers.append({**body, "notes": list(layer.notes)})
    whole = {"schema": SCHEMA, "verdict": report.verdict.value, "exit_code": report.exit_code, "layers": layers}
    return json.dumps(whole, indent=2, sort_keys=True, allow_nan=False) + "\n"
