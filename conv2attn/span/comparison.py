"""Facts of the heads of two checkpoints, side by side: `conv2attn heads A --compare B`."""

from dataclasses import dataclass
from typing import Any, final

from conv2attn.report import Document, Notes, Report, Table, counted
from conv2attn.span.facts import HeadsReport
from conv2attn.span.facts_document import FIGURES, shown
from conv2attn.verdicts import Verdict

SCHEMA = "conv2attn.heads-compared/1"
COMPARED = ("rel", "cont", "dist", "keys", "R2 3x3", "conv 3")
LEGEND = "before > after. The columns are those of `conv2attn heads`; - is what one of both does not have."


@final
@dataclass(frozen=True, eq=False, repr=False)
class HeadsComparison(Report):
    """The facts of two checkpoints, layers of the same name side by side."""

    first: HeadsReport
    second: HeadsReport

    @property
    def names(self) -> list[str]:
        """The layers of both, those of the first in its order."""
        return list(dict.fromkeys(layer.name for report in (self.first, self.second) for layer in report.layers))

    @property
    def verdict(self) -> Verdict:
        """Holds where every layer of one was read in both, otherwise unsupported."""
        whole = self.names and all(None not in self.pair(name, "rel") for name in self.names)
        return Verdict.HOLDS if whole else Verdict.UNSUPPORTED

    @property
    def exit_code(self) -> int:
        """0 where every layer of one was read in both, otherwise 3."""
        return self.verdict.exit_code

    def pair(self, name: str, column: str) -> tuple[float | None, float | None]:
        """A number of a layer in both."""
        found = []
        for report in (self.first, self.second):
            layer = next((each for each in report.layers if each.name == name and each.heads), None)
            found.append(None if layer is None else FIGURES[column][0](layer))
        return found[0], found[1]

    def document(self, verbose: bool = False) -> Document:
        """A line for each layer, each number before and after."""
        rows = []
        for name in self.names:
            told = [[shown(column, value) for value in self.pair(name, column)] for column in COMPARED]
            rows.append((name, *(f"{before} > {after}" for before, after in told)))
        answer = f"{self.verdict.value}: {counted(len(self.names), 'layer')} of two checkpoints side by side"
        return Document((answer,), (Table(("layer", *COMPARED), tuple(rows)), Notes((LEGEND,))), self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"schema": SCHEMA, "exit_code": self.exit_code, "numbers": self.records()}

    def records(self) -> list[dict[str, Any]]:
        """One record for each layer and number."""
        whole = [(name, column, *self.pair(name, column)) for name in self.names for column in COMPARED]
        return [dict(zip(("layer", "number", "before", "after"), each, strict=True)) for each in whole]
