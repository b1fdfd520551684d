"""The report of check_span: one row per layer, the conditions side by side."""

from dataclasses import dataclass
from typing import Any, final

from conv2attn.basis import Sides
from conv2attn.report import Document, Report
from conv2attn.span import document
from conv2attn.span.conditions.condition import Condition
from conv2attn.span.conditions.limits import Limits
from conv2attn.verdicts import Strength, Verdict, weakest_strength, worst_verdict


@final
@dataclass(frozen=True)
class SpanRow:
    """One layer. `decisive` names the condition that decides; `beside` are the average and each image alone."""

    name: str
    heads: int
    images: int
    grid: Sides
    conditions: tuple[Condition, ...]
    decisive: str
    limits: Limits
    beside: tuple[Condition, ...] = ()
    content: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def deciding(self) -> Condition:
        """The condition that decides."""
        return next(condition for condition in self.conditions if condition.name == self.decisive)

    @property
    def verdict(self) -> Verdict:
        """That of the condition that decides."""
        return self.deciding.verdict

    def condition(self, name: str) -> Condition:
        """The condition of this name: per-query, joint, interior or kernel."""
        return next(condition for condition in self.conditions if condition.name == name)


@final
@dataclass(frozen=True, repr=False)
class SpanReport(Report):
    """Whether attention can express the shifts of a kernel, layer by layer; the worst row decides."""

    rows: tuple[SpanRow, ...]
    asked: str

    @property
    def verdict(self) -> Verdict:
        """The worst of all rows; undecided where there is none."""
        return worst_verdict(row.verdict for row in self.rows)

    @property
    def strength(self) -> Strength:
        """The weakest of all rows that decide."""
        return weakest_strength(row.deciding.strength for row in self.rows)

    @property
    def exit_code(self) -> int:
        """0 holds, 1 refuted, 3 undecided or nothing checked."""
        return self.verdict.exit_code

    def document(self, verbose: bool = False) -> Document:
        """The answer, a row for each layer and notes; all conditions and a picture of each layer where `verbose`."""
        return document.document(self, verbose)

    def to_dict(self) -> dict[str, Any]:
        """Plain data; its schema is docs/span.schema.json."""
        return document.to_dict(self)
