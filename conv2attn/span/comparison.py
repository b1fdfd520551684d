"""Facts of the heads of several checkpoints, side by side: `conv2attn heads A --compare B --compare C`."""

from dataclasses import dataclass
from typing import Any, final

from conv2attn.report import Document, Notes, Report, Table, counted
from conv2attn.span.facts import HeadsReport
from conv2attn.span.facts_document import FIGURES, shown
from conv2attn.verdicts import Verdict

SCHEMA = "conv2attn.heads-compared/2"
COMPARED = ("rel", "cont", "dist", "R2 3x3", "conv 3")
LEGEND = "one number for each checkpoint, in the order given; the columns are those of `conv2attn heads`"


@final
@dataclass(frozen=True, eq=False, repr=False)
class HeadsComparison(Report):
    """The facts of several checkpoints, such as steps of a training run, layers of the same name side by side."""

    reports: tuple[HeadsReport, ...]

    @property
    def names(self) -> list[str]:
        """The layers of all, those of the first in its order."""
        return list(dict.fromkeys(layer.name for report in self.reports for layer in report.layers))

    @property
    def verdict(self) -> Verdict:
        """Holds where every layer of one was read in all, otherwise unsupported."""
        whole = self.names and all(None not in self.numbers(name, "dist") for name in self.names)
        return Verdict.HOLDS if whole else Verdict.UNSUPPORTED

    @property
    def exit_code(self) -> int:
        """0 where every layer of one was read in all, otherwise 3."""
        return self.verdict.exit_code

    def numbers(self, name: str, column: str) -> list[float | None]:
        """A number of a layer in each checkpoint."""
        found = []
        for report in self.reports:
            layer = next((each for each in report.layers if each.name == name and each.heads), None)
            found.append(None if layer is None else FIGURES[column][0](layer))
        return found

    def document(self, verbose: bool = False) -> Document:
        """A line for each layer, each number in the order of the checkpoints."""
        rows = []
        for name in self.names:
            told = [[shown(x, FIGURES[column][1]) for x in self.numbers(name, column)] for column in COMPARED]
            rows.append((name, *(" > ".join(each) for each in told)))
        many = f"{len(self.reports)} checkpoints"
        answer = f"{self.verdict.value}: {counted(len(self.names), 'layer')} of {many} side by side"
        return Document((answer,), (Table(("layer", *COMPARED), tuple(rows)), Notes((LEGEND,))), self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"schema": SCHEMA, "exit_code": self.exit_code, "numbers": self.records()}

    def records(self) -> list[dict[str, Any]]:
        """One record for each layer, number and checkpoint."""
        return [
            {"layer": name, "number": column, "checkpoint": place, "value": value}
            for name in self.names
            for column in COMPARED
            for place, value in enumerate(self.numbers(name, column))
        ]
