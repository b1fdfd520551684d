"""What was found, as values: a row a layer, the structure between, the measured outputs; and their renderings."""

import json
from collections import Counter
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, final

from conv2attn.tables import Cell, markdown_table, show, text_table
from conv2attn.verdicts import Strength, Verdict, weakest_strength, worst_verdict

HEADER = (
    *("layer", "convolution", "grid", "heads", "d_head", "alpha", "parameters", "attention avoided"),
    *("max |error|", "bound", "strength", "verdict"),
)


@final
@dataclass(frozen=True)
class Row:
    """One layer. `max_error` was measured on inputs up to `input_range`; `bound` holds for all of that range.

    `leak` is the largest off-target mass of a head. `code` and `finding` say why, where the verdict is not `holds`.
    `skipped` rows were left out on request and do not count.
    """

    name: str
    convolution: str
    verdict: Verdict
    strength: Strength | None = None
    grid: tuple[int, ...] | None = None
    heads: int | None = None
    d_head: int | None = None
    alpha: float | None = None
    parameters: int | None = None
    attention_avoided: str | None = None
    leak: float | None = None
    input_range: float | None = None
    max_error: float | None = None
    bound: float | None = None
    code: str = ""
    finding: str = ""
    skipped: bool = False

    def cells(self) -> list[Cell]:
        """The row of the table."""
        grid = "x".join(map(str, self.grid)) if self.grid else None
        strength = None if self.strength is None else self.strength.value
        verdict = "skipped" if self.skipped else self.verdict.value
        columns: list[Cell] = [self.name, self.convolution, grid, self.heads, self.d_head, self.alpha]
        columns += [self.parameters, self.attention_avoided, self.max_error, self.bound]
        return [*columns, strength, verdict]


@final
@dataclass(frozen=True)
class Outputs:
    """The outputs of both networks on some images: measured, not bounded."""

    images: str
    count: int
    max_difference: float
    largest_output: float
    same_top1: int | None = None
    correct: tuple[int, int] | None = None


@final
@dataclass(frozen=True)
class Certificate:
    """Whether the second network computes the first: the worst row decides, the weakest strength counts.

    `structure` lists what differs between the convolutions; empty if nothing does.
    """

    rows: tuple[Row, ...]
    structure: tuple[str, ...] = ()
    outputs: Outputs | None = None
    assumptions: tuple[str, ...] = ()

    @cached_property
    def counted(self) -> tuple[Row, ...]:
        """The rows that count."""
        return tuple(row for row in self.rows if not row.skipped)

    @property
    def verdict(self) -> Verdict:
        """The worst of all rows; refuted where the structure differs; undecided where nothing was checked."""
        return Verdict.REFUTED if self.structure else worst_verdict(row.verdict for row in self.counted)

    @property
    def strength(self) -> Strength:
        """The weakest of all rows."""
        return weakest_strength(row.strength for row in self.counted if row.strength is not None)

    @property
    def exit_code(self) -> int:
        """0 holds, 1 refuted, 3 undecided, unsupported or nothing checked."""
        return self.verdict.exit_code

    def to_text(self) -> str:
        """The report for a terminal."""
        lines = [text_table(HEADER, [row.cells() for row in self.rows]), "", *self.findings(), *self.totals()]
        return "\n".join(lines) + "\n"

    def to_markdown(self) -> str:
        """The report for a document."""
        notes = [f"- {line}" for line in (*self.findings(), *self.totals())]
        return "\n".join([markdown_table(HEADER, [row.cells() for row in self.rows]), "", *notes]) + "\n"

    def to_json(self) -> str:
        """The report for a program: sorted keys, no NaN."""
        body: dict[str, Any] = {
            "schema": "conv2attn.report/1",
            "verdict": self.verdict.value,
            "strength": self.strength.value,
            "exit_code": self.exit_code,
            "layers": [plain(row) for row in self.rows],
            "structure": list(self.structure),
            "outputs": plain(self.outputs) if self.outputs else None,
            "assumptions": list(self.assumptions),
        }
        return json.dumps(body, indent=2, sort_keys=True, allow_nan=False) + "\n"

    def findings(self) -> list[str]:
        """A sentence for each row that does not hold, and for the structure."""
        rows = [f"{row.code} {row.name}: {row.finding}".strip() for row in self.rows if row.finding]
        return [*rows, *(f"C2A405 {line}" for line in self.structure)]

    def totals(self) -> list[str]:
        """What was measured end to end, what was assumed, and the count of all four verdicts."""
        counts = Counter(row.verdict for row in self.counted)
        tally = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict)
        skipped = len(self.rows) - len(self.counted)
        between = "differs" if self.structure else "is untouched, bit for bit"
        lines = [f"between the convolutions everything {between}"] if self.counted else ["nothing was checked"]
        if self.outputs:
            lines += outputs_in_words(self.outputs)
        known = f" ({self.strength.value})" if self.verdict is Verdict.HOLDS else ""
        lines += [f"assumed: {line}" for line in self.assumptions]
        return [*lines, f"{tally}{f', {skipped} skipped' if skipped else ''}: {self.verdict.value}{known}"]


def outputs_in_words(outputs: Outputs) -> list[str]:
    """The end-to-end measurement in sentences."""
    largest = show(outputs.largest_output)
    lines = [
        f"outputs on {outputs.images}: largest difference {show(outputs.max_difference)}, largest output {largest}"
    ]
    if outputs.same_top1 is not None:
        lines.append(f"same top-1 class: {outputs.same_top1} of {outputs.count}")
    if outputs.correct is not None:
        lines.append(
            f"right by their labels: {outputs.correct[0]} before, {outputs.correct[1]} after, of {outputs.count}"
        )
    return lines


def plain(value: Any) -> dict[str, Any]:
    """A dataclass as JSON takes it: enumerations by value, numbers that JSON cannot say as strings."""
    items = {field.name: getattr(value, field.name) for field in fields(value)}
    for key, item in items.items():
        if isinstance(item, Verdict | Strength):
            items[key] = item.value
        elif isinstance(item, float) and not abs(item) < float("inf"):
            items[key] = str(item)
    return items
