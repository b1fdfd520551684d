"""Facts of the heads of two checkpoints, side by side: `conv2attn heads A --compare B`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from conv2attn.report import Document, Notes, Report, Table, counted
from conv2attn.span.facts import HeadsReport, LayerFacts
from conv2attn.verdicts import Verdict

SCHEMA = "conv2attn.heads-compared/1"
LEGEND = "before > after. The columns are those of `conv2attn heads`; - is what one of both does not have."


def spanned(layer: LayerFacts) -> float | None:
    """Mean R^2 of the span over a 3x3 kernel."""
    return next((fact.mean for fact in layer.spans if (fact.kernel_size, fact.dilation) == (3, 1)), None)


def explained(layer: LayerFacts) -> float | None:
    """Share that the nearest 3x3 convolution explains."""
    return next((found.share for found in layer.convolutions if found.size == 3), None)


NUMBERS: dict[str, tuple[Callable[[LayerFacts], float | None], str]] = {
    "rel": (lambda layer: layer.mean("relative"), ".0%"),
    "cont": (lambda layer: layer.mean("content"), ".0%"),
    "dist": (lambda layer: layer.mean("distance"), ".1f"),
    "keys": (lambda layer: layer.mean("keys_in_use"), ".0f"),
    "R2 3x3": (spanned, ".0%"),
    "conv 3": (explained, ".0%"),
}


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
            found.append(None if layer is None else NUMBERS[column][0](layer))
        return found[0], found[1]

    def document(self, verbose: bool = False) -> Document:
        """A line for each layer, each number before and after."""
        rows = []
        for name in self.names:
            pairs = [(self.pair(name, column), form) for column, (_, form) in NUMBERS.items()]
            told = [["-" if value is None else format(value, form) for value in both] for both, form in pairs]
            rows.append((name, *(f"{before} > {after}" for before, after in told)))
        answer = f"{self.verdict.value}: {counted(len(self.names), 'layer')} of two checkpoints side by side"
        return Document((answer,), (Table(("layer", *NUMBERS), tuple(rows)), Notes((LEGEND,))), self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"schema": SCHEMA, "exit_code": self.exit_code, "numbers": self.records()}

    def records(self) -> list[dict[str, Any]]:
        """One record for each layer and number."""
        whole = [(name, column, *self.pair(name, column)) for name in self.names for column in NUMBERS]
        return [dict(zip(("layer", "number", "before", "after"), each, strict=True)) for each in whole]
