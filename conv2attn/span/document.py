"""The text of a span report, and its plain data; pure functions."""

import math
from collections import Counter
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from conv2attn.report import Cell, Document, Notes, Table, Verbatim, counted, gathered, show
from conv2attn.report.stored import checked
from conv2attn.span.conditions.condition import Condition, Counting, DualVector, Mixing, Mixings, NullVector, Witness
from conv2attn.span.pictures import LEGEND, picture
from conv2attn.span.stored import SCHEMA, StoredSpan
from conv2attn.verdicts import Strength, Verdict

if TYPE_CHECKING:
    from conv2attn.span.report import SpanReport, SpanRow

KINDS = {Mixing: "mixing", NullVector: "null vector", Counting: "counting"}
HEADER = (
    *("layer", "grid", "images", "heads", "condition", "queries", "targets", "rank", "singular values around"),
    *("residual", "at least", "distance", "eps", "|Phi|", "strength", "verdict"),
)
SPARE = (
    *("singular values around", "images", "eps", "at least", "queries", "rank", "|Phi|", "condition", "targets"),
    *("grid", "heads", "distance", "strength"),
)


def document(report: "SpanReport", verbose: bool = False) -> Document:
    """The answer, a row for each layer, and notes; with all conditions and a picture of each layer where `verbose`."""
    rows = tuple(tuple(cells(row, each)) for row in report.rows for each in (shown(row) if verbose else [row.deciding]))
    pictures = tuple(line for row in report.rows for line in in_pictures(row)) if verbose else ()
    legend = (LEGEND,) if pictures else ()
    notes = (*remarks(report, verbose), *totals(report))
    parts = (Notes((report.asked,)), Table(HEADER, rows, SPARE), Verbatim((*pictures, *legend)), Notes(notes))
    return Document(tuple(answer(report)), parts, report.verdict)


def answer(report: "SpanReport") -> list[str]:
    """The answer in four lines at most: the verdict, the taps formed, the spans' reach, and what convolutions explain.

    R^2 is 1 less the squared distance of a shift from the span, over its square: of the centre where it is asked for,
    of all on average, and of the best, each the mean over the layers that were checked.
    """
    checked = [row.deciding for row in report.rows if row.deciding.targets]
    held = sum(row.verdict is Verdict.HOLDS for row in report.rows)
    layers = counted(len(report.rows), "layer")
    lines = [f"{report.verdict.value}: {held} of {layers} can express every convolution asked for"]
    if not checked:
        return lines
    formed = [sum(target.verdict is Verdict.HOLDS for target in each.targets) for each in checked]
    span = f"{min(formed)}" if min(formed) == max(formed) else f"{min(formed)} to {max(formed)}"
    lines.append(f"taps formed: {span} of {max(len(each.targets) for each in checked)} in each layer")
    reached = [[1 - t.distance**2 for t in each.targets if t.distance is not None] for each in checked]
    if all(reached):
        centers = [
            1 - t.distance**2
            for each in checked
            for t in each.targets
            if t.distance is not None and not any(t.offset or (1,))
        ]
        middle = f"centre {sum(centers) / len(centers):.2f}, " if len(centers) == len(checked) else ""
        mean = sum(sum(each) / len(each) for each in reached) / len(reached)
        best = sum(max(each) for each in reached) / len(reached)
        lines.append(f"R2 of the span: {middle}mean {mean:.2f}, best {best:.2f}; `conv2attn heads` tells more")
    explained = [each.explained for each in checked if each.explained is not None]
    if len(explained) == len(checked):
        shares = " to ".join(dict.fromkeys(f"{share:.0%}" for share in (min(explained), max(explained))))
        lines.append(f"convolutions of these taps explain {shares} of the attention, in squares")
    return lines


def shown(row: "SpanRow") -> tuple[Condition, ...]:
    """The conditions of the table: the four, and beside them those of the average and of renormalised rows."""
    return (*row.conditions, *(each for each in row.beside if each.name.endswith(("average", "renormalised"))))


def cells(row: "SpanRow", condition: Condition) -> list[Cell]:
    """One line of the table; the condition that decides has a star."""
    name = condition.name + (" *" if condition.name == row.decisive else "")
    around = None
    if condition.threshold is not None:
        around = " | ".join("-" if value is None else show(value) for value in condition.around)
    floor = max((target.floor for target in condition.targets), default=None)
    sampled = condition.sampled and condition.strength is not Strength.SAMPLED
    strength = condition.strength.value + (", sampled" if sampled else "")
    checked = condition.targets or condition.verdict is Verdict.UNSUPPORTED
    verdict = condition.verdict if checked else "nothing checked"
    figures: list[Cell] = [condition.queries, len(condition.targets), condition.rank, around, condition.residual]
    figures += [
        floor,
        condition.distance,
        row.limits.allowed(condition.norm or 0.0),
        condition.norm,
        strength.replace("sampled, sampled", "sampled"),
        verdict,
    ]
    return [row.name, "x".join(map(str, row.grid)), row.images, row.heads, name, *figures]


def in_pictures(row: "SpanRow") -> list[str]:
    """The residual of every offset for the condition that decides."""
    lines = picture(row.deciding.targets, row.limits.allowed(1.0))
    return [f"{row.name}, {row.decisive}: residual and distance of every offset", *lines, ""] if lines else []


def remarks(report: "SpanReport", verbose: bool) -> list[str]:
    """Notes beyond the figures, of the conditions that decide, or of all where `verbose`."""
    said: list[tuple[str, str]] = []
    varying = [row.content for row in report.rows if row.images > 1]
    if len(varying) > 1 and not verbose:
        shares = " to ".join(dict.fromkeys(f"{share:.0%}" for share in (min(varying), max(varying))))
        said.append(("all", f"{shares} of the squared attention varies over images"))
    for row in report.rows:
        said += [(row.name, note) for note in row.notes]
        asked = row.conditions if verbose else (row.deciding,)
        said += [(f"{row.name}, {each.name}", each.sentence) for each in asked if each.sentence]
        if row.images > 1 and (verbose or len(varying) == 1):
            varies = f"{row.content:.3%} of the squared attention varies over {row.images} images"
            said.append((row.name, varies))
        alone = [each for each in row.beside if each not in shown(row)]
        if alone:
            held = sum(each.verdict is Verdict.HOLDS for each in alone)
            said.append((row.name, f"alone, each with a Phi of its own, {held} of {len(alone)} images hold"))
    times = Counter(sentence for _, sentence in said)
    named = [("all", each) if times[each] == len(report.rows) > 3 else (name, each) for name, each in said]
    return gathered(said, None) if verbose else gathered(dict.fromkeys(named))


def totals(report: "SpanReport") -> list[str]:
    """The limits, and the count of all four verdicts."""
    bounds = sorted({(row.limits.eps, row.limits.max_phi, row.limits.per_norm) for row in report.rows if row.heads})
    lines = []
    for eps, most, per_norm in bounds:
        allowed = f"{eps:.2g} (1 + |Phi|)" if per_norm else f"{eps:.2g}"
        lines.append(
            f"holds: a residual of at most eps = {allowed}, with |Phi| <= {most:g}; refuted: exactly none such"
        )
    counts = Counter(row.verdict for row in report.rows)
    tally = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict)
    if not report.rows or not any(row.deciding.targets for row in report.rows):
        lines.append("nothing was checked")
    return [*lines, f"{tally}: {report.verdict.value}"]


def to_dict(report: "SpanReport") -> dict[str, Any]:
    """The report for a program; `stored.py` has its types, and docs/span.schema.json is their schema."""
    body = {
        "schema": SCHEMA,
        "asked": report.asked,
        "verdict": report.verdict.value,
        "strength": report.strength.value,
        "exit_code": report.exit_code,
        "layers": [
            {**plain(row), "verdict": row.verdict.value, "strength": row.deciding.strength.value} for row in report.rows
        ],
    }
    return checked(body, StoredSpan)


def plain(value: Any) -> Any:
    """A value as JSON takes it: fractions and what is not finite as strings, numpy's floats as Python's.

    What is too long is counted, rows of Phi for every query, or left out, the numbers of a dual at the rows that are
    named.
    """
    if isinstance(value, Mixings):
        return {"kind": "mixings", "target": value.target, "rows": len(value.rows)}
    if isinstance(value, DualVector):
        rows = [row for row, _ in value.values]
        return {"kind": "dual", "target": value.target, "rows": rows, "inverse": plain(value.inverse)}
    if isinstance(value, Witness):
        held = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        return {"kind": KINDS[type(value)], **held}
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Fraction) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    if isinstance(value, float):
        return float(value)
    return value
