"""The text of a `SpanReport`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product

from conv2attn.report import Cell, Document, Notes, Table, Verbatim, counted, document, gathered, show
from conv2attn.span.ends import sentence_of_ends
from conv2attn.span.span_report import Condition, ConditionName, SpanReport, SpanRow, Target
from conv2attn.theory.basis import Offset
from conv2attn.verdicts import Strength, Verdict

SPAN_COLUMNS = (
    *("layer", "grid", "images", "heads", "condition", "queries", "targets", "rank", "singular values around"),
    *("residual", "at least", "distance", "eps", "|Phi|", "strength", "verdict"),
)
SPAN_SPARE = (
    *("singular values around", "images", "eps", "at least", "queries", "rank", "|Phi|", "condition", "targets"),
    *("grid", "heads", "distance", "strength"),
)
BRIEF_COLUMNS = ("layer", "grid", "heads", "targets", "residual", "strength", "verdict")
MOST_ROWS = 5  # layers that do not hold, shown without -v
RESIDUAL = (
    "residual: distance of the worst query from its target shift; 0 is the shift itself, 1 the distance without heads"
)
QUANTIFIERS: dict[ConditionName, str] = {
    "per-query": "query by query, ",
    "per-image": "image by image inside the border, ",
    "joint": "at every query, ",
    "interior": "inside the border, ",
    "kernel": "inside the border, ",
}
"""The queries that a condition covers. The answer states them, since a narrow terminal may drop the column."""
LEVELS = ((1e-6, ","), (1e-4, ":"), (1e-2, "-"), (0.1, "+"), (0.5, "*"), (float("inf"), "#"))
RESIDUAL_LEGEND = "residual: . at most eps, then up to , 1e-6  : 1e-4  - 0.01  + 0.1  * 0.5  # more"


@document.register
def _(report: SpanReport, verbose: bool = False) -> Document:
    """The answer, the rows that do not hold, and notes; if `verbose`, all conditions and a picture of each layer."""
    pictures = tuple(line for row in report.rows for line in in_pictures(row)) if verbose else ()
    legend = (RESIDUAL_LEGEND,) if pictures else ()
    table, more = table_of(report) if verbose else brief_table(report)
    notes = (*more, *span_remarks(report, verbose), *verdict_totals(report, verbose))
    ran_on = (f"inputs: {report.inputs}",) if report.inputs else ()
    parts = (Notes((report.asked, *ran_on)), table, Verbatim((*pictures, *legend)), Notes(notes))
    return Document(tuple(span_answer(report, verbose)), parts, report.verdict)


def table_of(report: SpanReport) -> tuple[Table, list[str]]:
    """One row per condition and layer."""
    rows = tuple(tuple(condition_cells(row, each)) for row in report.rows for each in row.conditions)
    spare = tuple(name for name in SPAN_SPARE if name != "condition" or len(rows) == len(report.rows))
    return Table(SPAN_COLUMNS, rows, spare), []


def brief_table(report: SpanReport) -> tuple[Table, list[str]]:
    """The rows that do not hold, or the worst row if all hold, in a few columns; and notes on the rows left out."""
    wrong = [row for row in report.rows if row.verdict is not Verdict.HOLDS]
    worst = sorted(report.rows, key=lambda row: row.deciding.residual or 0.0, reverse=True)[:1]
    rows = tuple(tuple(condition_cells(row, row.deciding)) for row in (wrong or worst)[:MOST_ROWS])
    table = Table(SPAN_COLUMNS, rows).without({*SPAN_COLUMNS} - {*BRIEF_COLUMNS})
    hidden = len(report.rows) - len(rows)
    more = [f"{hidden} more layer{'s' * (hidden > 1)} with -v"] if hidden else []
    return Table(table.columns, table.rows, BRIEF_COLUMNS[1:4]), [*more, *([RESIDUAL] if rows else [])]


def span_answer(report: SpanReport, verbose: bool = False) -> list[str]:
    """The verdict and the taps formed; if `verbose`, R^2 of the spans and the share that convolutions explain.

    R^2 is `1 - |shift - span|^2 / |shift|^2`. It is printed for the centre (if it is one of the offsets), as the mean
    over offsets, and for the best offset. All three are means over the layers that were checked.
    """
    # The claim begins with its quantifier, which is left out if the layers have different conditions.
    checked = [row.deciding for row in report.rows if row.deciding.targets]
    holding = sum(row.verdict is Verdict.HOLDS for row in report.rows)
    layers = counted(len(report.rows), "layer")
    conditions = {row.deciding.name for row in report.rows}
    where = QUANTIFIERS[conditions.pop()] if len(conditions) == 1 else ""
    lines = [f"{report.verdict.value}: {where}{holding} of {layers} can form every convolution with these taps"]
    if not checked:
        return lines
    formed = [sum(target.verdict is Verdict.HOLDS for target in each.targets) for each in checked]
    span = f"{min(formed)}" if min(formed) == max(formed) else f"{min(formed)} to {max(formed)}"
    lines.append(f"taps formed: {span} of {max(len(each.targets) for each in checked)} in each layer")
    if not verbose:
        return lines
    reached = [[t.reached for t in each.targets if t.reached is not None] for each in checked]
    if all(reached):
        every = [t for each in checked for t in each.targets if t.offset is not None and not any(t.offset)]
        centers = [t.reached for t in every if t.reached is not None]
        middle = f"centre {sum(centers) / len(centers):.2f}, " if len(centers) == len(checked) else ""
        mean = sum(sum(each) / len(each) for each in reached) / len(reached)
        best = sum(max(each) for each in reached) / len(reached)
        lines.append(f"R2 of the span: {middle}mean {mean:.2f}, best {best:.2f}; more by `conv2attn heads`")
    explained = [each.explained for each in checked if each.explained is not None]
    if len(explained) == len(checked):
        shares = " to ".join(dict.fromkeys(f"{share:.0%}" for share in (min(explained), max(explained))))
        lines.append(f"convolutions of these taps explain {shares} of the attention, in squares")
    return lines


def condition_cells(row: SpanRow, condition: Condition) -> list[Cell]:
    """One row of the table. A star marks the deciding condition, and a layer that was not read has no figures."""
    name = condition.name + (" *" if condition is row.deciding and len(row.conditions) > 1 else "")
    if not row.heads:
        return [row.name, *[None] * 3, name, *[None] * 10, condition.verdict]
    around = None
    if condition.threshold is not None:
        around = " | ".join("-" if value is None else show(value) for value in condition.around)
    floor = max((target.floor for target in condition.targets), default=None)
    sampled = condition.sampled and condition.strength is not Strength.SAMPLED
    strength = condition.strength.value + (", sampled" if sampled else "")
    verdict = condition.verdict if condition.targets else "nothing checked"
    figures: list[Cell] = [condition.queries, len(condition.targets), condition.rank, around, condition.residual]
    figures += [
        floor,
        condition.distance,
        row.limits.allowed(condition.norm or 0.0),
        condition.norm,
        strength.replace("sampled, sampled", "sampled") if condition.targets else None,
        verdict,
    ]
    return [row.name, "x".join(map(str, row.grid)), row.images, row.heads, name, *figures]


def in_pictures(row: SpanRow) -> list[str]:
    """A picture of the residual of every offset under the deciding condition."""
    lines = picture(row.deciding.targets, row.limits.allowed(1.0))
    return [f"{row.name}, {row.deciding.name}: residual and distance of every offset", *lines, ""] if lines else []


def span_remarks(report: SpanReport, verbose: bool) -> list[str]:
    """Notes of the deciding conditions, or of all conditions if `verbose`."""
    sentences: list[tuple[str, str]] = []
    for row in report.rows:
        sentences += [(row.name, note) for note in row.notes]
        conditions = row.conditions if verbose else (row.deciding,)
        sentences += [(f"{row.name}, {each.name}", each.sentence) for each in conditions if each.sentence]
        wanted = [each for each in conditions if each.ends is not None and (verbose or each.ends.of_convolution)]
        sentences += [
            (f"{row.name}, {each.name}", sentence_of_ends(each.ends, row.limits.max_phi))
            for each in wanted
            if each.ends is not None
        ]
        if len(row.deciding.targets) and row.images > 1:
            sentences.append(
                (
                    row.name,
                    f"one Phi for {row.images} images" if row.deciding.name != "per-image" else "a Phi for each image",
                )
            )
    # If all of many layers have the same sentence, it is printed once.
    times = Counter(sentence for _, sentence in sentences)
    named = [("all", each) if times[each] == len(report.rows) > 3 else (name, each) for name, each in sentences]
    return gathered(sentences, None) if verbose else gathered(dict.fromkeys(named))


def verdict_totals(report: SpanReport, verbose: bool) -> list[str]:
    """The limits if `verbose`, otherwise what to run next; then the count of all four verdicts."""
    bounds = sorted({(row.limits.eps, row.limits.max_phi, row.limits.per_norm) for row in report.rows if row.heads})
    lines = [] if verbose else ["with -v: every condition, offset and limit", "what heads do: `conv2attn heads`"]
    for eps, most, per_norm in bounds if verbose else []:
        allowed = f"{eps:.2g} (1 + |Phi|)" if per_norm else f"{eps:.2g}"
        lines.append(
            f"holds: a residual of at most eps = {allowed}, with |Phi| <= {most:g}; "
            "refuted: proved that no such Phi exists"
        )
    counts = Counter(row.verdict for row in report.rows)
    tally = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict)
    if not report.rows or not any(row.deciding.targets for row in report.rows):
        lines.append("nothing was checked")
    return [*lines, f"{tally}: {report.verdict.value}"]


def picture(targets: Sequence[Target], eps: float) -> list[str]:
    """One character per offset; planes of a three-dimensional kernel follow each other.

    On the left is the certified residual of the worst query, on the right the least-squares distance over all queries,
    if it was computed. Empty if the targets are not offsets.
    """
    with_offset = [target for target in targets if target.offset is not None]
    residuals = [0.0 if target.verdict is Verdict.HOLDS else target.residual for target in with_offset]
    left = layout({t.offset: x for t, x in zip(with_offset, residuals, strict=True) if t.offset is not None}, eps)
    right = layout({t.offset: t.distance for t in with_offset if t.offset is not None and t.distance is not None}, eps)
    return [f"  {a:{len(left[0])}}     {b}".rstrip() for a, b in zip(left, right or [""] * len(left), strict=True)]


def layout(values: Mapping[Offset, float], eps: float) -> list[str]:
    """Lines with the characters of the values at their offsets."""
    if not values:
        return []
    axes = [sorted(set(along)) for along in zip(*values, strict=True)]
    lines: list[str] = []
    for ahead in product(*axes[:-2]):
        lines += [""] if lines else []
        for row in axes[-2] if len(axes) > 1 else [None]:
            before = (*ahead, row) if row is not None else ahead
            places = [(*before, column) for column in axes[-1]]
            lines.append(" ".join(sign(values[place], eps) if place in values else " " for place in places))
    return lines


def sign(residual: float, eps: float) -> str:
    """The character of a residual: `.` up to eps, and one character per level above it."""
    return "." if residual <= eps else next(mark for limit, mark in LEVELS if residual <= limit)
