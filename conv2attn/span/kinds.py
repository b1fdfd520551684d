"""The kind of a head in one word, by rules in a fixed order, with the margin by which the rule decides."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, final

Kind = Literal["class token", "sink", "shift", "local", "bar", "uniform", "content", "mixed"]


@final
@dataclass(frozen=True)
class Rule:
    """A head is of this kind where `number` is at least `threshold`, and no rule before this one decides."""

    kind: Kind
    number: str
    threshold: float
    meaning: str


RULES = (
    Rule("class token", "extra", 0.5, "half of its attention goes to leading tokens that are no pixels"),
    Rule("sink", "sink", 0.5, "one key has half of the attention of the queries that may read it"),
    Rule("shift", "peak_mass", 0.5, "half of its attention goes to one displacement"),
    Rule("local", "around", 0.5, "half of it goes to the displacements next to its peak, diagonals included"),
    Rule("bar", "bar", 0.5, "half of it goes to displacements of one row, or of one column, of the grid"),
    Rule("uniform", "evenness", 0.8, "exp of its entropy is four fifths of the keys that a query may read"),
    Rule("content", "content", 0.5, "half of its energy about the mean varies over the images"),
)
"""Tried one after the other; a head that fits none is mixed."""


def kind_of(number: Callable[[str], float | None]) -> tuple[Kind, float]:
    """The kind of a head, and how far its number is above the threshold, or below the nearest one where it is mixed."""
    known = [(rule, value) for rule in RULES if (value := number(rule.number)) is not None]
    for rule, value in known:
        if value >= rule.threshold:
            return rule.kind, value - rule.threshold
    return "mixed", min((rule.threshold - value for rule, value in known), default=0.0)
