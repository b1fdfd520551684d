"""`Fact`, which is one line of the table of facts; the format of each unit; and the sums of a head."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, Literal, NamedTuple, final

import numpy as np

from conv2attn.span.attention_rows import Array
from conv2attn.span.graded_facts.facts import HeadFacts, LayerFacts
from conv2attn.span.graded_facts.measures import Estimate
from conv2attn.span.graded_facts.sums import Sums


@final
@dataclass(frozen=True, eq=False)
class SummedHead:
    """The sums of one head over all queries and images, its shares, and the row-major index of its peak in `mass`."""

    head: int
    sums: Sums
    shares: tuple[float | None, ...]
    peak: int

    @property
    def count(self) -> int:
        """Number of queries of all images."""
        return self.sums.images * self.sums.queries

    @cached_property
    def mass(self) -> Array:
        """m(d), the mean attention by displacement; displacement 0 is in the middle of each axis."""
        return np.asarray(self.sums.mass[:, self.head].sum(0) / self.count)

    def mean(self, name: str) -> float:
        """The mean over queries of one of the sums."""
        return float(getattr(self.sums, name)[:, self.head].sum() / self.count)

    def displacement(self, place: int) -> tuple[int, ...]:
        """The displacement at a row-major index of `mass`."""
        at = np.unravel_index(place, self.mass.shape)
        return tuple(int(x) - side // 2 for x, side in zip(at, self.mass.shape, strict=True))

    def around(self) -> float:
        """The attention to the peak and to the displacements next to it, diagonals included."""
        at = np.unravel_index(self.peak, self.mass.shape)
        return float(self.mass[tuple(slice(max(0, int(x) - 1), int(x) + 2) for x in at)].sum())

    def bar(self) -> float | None:
        """The largest attention to the displacements of one row, or of one column; None on a line."""
        axes = range(self.mass.ndim)
        lines = [float(self.mass.sum(tuple(a for a in axes if a != axis)).max()) for axis in axes]
        return max(lines) if len(lines) > 1 else None

    def evenness(self) -> float:
        """The keys in use divided by the keys that a query may read, both as geometric means over queries."""
        return float(np.exp(self.mean("entropy") - self.sums.room / self.sums.queries))

    def sink(self) -> float:
        """The largest mean attention to one key, over the queries that may read that key, as `FACTS` defines it."""
        # A key that few queries may read could be a sink because of the mask alone. So a key counts as readable by at
        # least half as many queries as the key with the most readers.
        readers = np.maximum(self.sums.readers, self.sums.readers.max() / 2)
        return float((self.sums.columns[self.head] / readers).max())


Unit = Literal["word", "displacement", "share", "tokens", "keys", "error of a share", "ratio", "number"]
FORMS: dict[Unit, str] = {
    "share": ".0%",
    "tokens": ".1f",
    "keys": ".0f",
    "error of a share": ".1%",
    "ratio": ".0e",
    "number": ".0f",
}
"""The format of a number of each unit in a report."""


class Curve(NamedTuple):
    """How a fact is drawn over the layers: a colour and a marker of matplotlib."""

    colour: str
    mark: str


@final
@dataclass(frozen=True)
class Fact:
    """A number of heads or of layers, with the names that reports, pictures and pages use for it.

    Args:
        name: its field in `HeadFacts`; for a number of layers only, its name in the table.
        title: the title of its column in reports.
        words: its name in pictures and on the page of `explore`.
        unit: the unit in which it is written.
        meaning, source: its formula, and who defined it.
        rule: computes it from the sums of a head; None if it follows from other numbers.
        estimate: computes it for all heads of a layer at once, and again with one image left out. `Errors` has its
            standard error under the same name.
        layer_rule: computes it from the facts of a layer; without a rule it is the mean over the heads.
        columns: the lines of the report that have it: those of heads, those of layers, or both.
        leaves: the order in which a narrow terminal drops columns: smaller numbers first, None never.
        if_any: whether its columns are left out if no head has it.
        curve: its curve over the layers, if it is drawn.
        explored: whether the page of `explore` shows it.
    """

    name: str
    title: str
    words: str
    unit: Unit
    meaning: str
    source: str = ""
    rule: Callable[[SummedHead], Any] | None = None
    estimate: Callable[[Sums], Estimate] | None = None
    layer_rule: Callable[[LayerFacts], float | None] | None = None
    columns: Literal["both", "head", "layer", "none"] = "none"
    leaves: int | None = 0
    if_any: bool = False
    curve: Curve | None = None
    explored: bool = False

    def of_head(self, head: HeadFacts) -> Any:
        """The value of the number for a head."""
        return attrgetter(self.name)(head)

    def of_layer(self, layer: LayerFacts) -> float | None:
        """The value of the number for a layer."""
        return layer.mean(self.name) if self.layer_rule is None else self.layer_rule(layer)

    @property
    def label(self) -> str:
        """Its name in the picture of the curves."""
        return f"{self.words} / side" if self.unit == "tokens" else self.words

    def height(self, layer: LayerFacts) -> float | None:
        """Its height in the picture of the curves. Tokens are divided by the longest side of the grid."""
        value = self.of_layer(layer)
        return value / max(layer.grid) if value is not None and self.unit == "tokens" else value

    def written(self, value: Any) -> str:
        """A value in the format of reports: "-" for None, and no minus sign before a number that rounds to 0."""
        if value is None:
            return "-"
        if self.unit == "word":
            return str(value)
        if self.unit == "displacement":
            return ",".join(map(str, value))
        text = format(value, FORMS[self.unit])
        return text.removeprefix("-") if not any(digit in "123456789" for digit in text) else text
