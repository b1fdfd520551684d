"""Verdicts on a claim, and how strongly each is known."""

from collections.abc import Iterable
from enum import Enum
from typing import assert_never, final


@final
class Verdict(Enum):
    """The answer to a question; never a truth value, since `undecided` is neither."""

    HOLDS = "holds"
    REFUTED = "refuted"
    UNDECIDED = "undecided"
    UNSUPPORTED = "unsupported"

    def __bool__(self) -> bool:
        raise TypeError(f"a verdict is not a truth value: compare with Verdict.HOLDS (this one is {self.value})")

    @property
    def exit_code(self) -> int:
        """0 for holds; 1 for refuted; 3 for undecided or unsupported."""
        match self:
            case Verdict.HOLDS:
                return 0
            case Verdict.REFUTED:
                return 1
            case Verdict.UNDECIDED | Verdict.UNSUPPORTED:
                return 3
            case _:
                assert_never(self)


@final
class Strength(Enum):
    """How a verdict is known, ordered from "exactly, for all inputs" to "on these inputs only".

    `identified`: equal as formulas, for all inputs of the sizes that were run, with the printed error probability.
    `rounded`: the same functions in the same places, and between them every section agreed on random numbers within a
    few units of rounding.
    """

    PROVED = "proved"
    IDENTIFIED = "identified"
    BOUNDED = "bounded"
    ROUNDED = "rounded"
    SAMPLED = "sampled"

    def __bool__(self) -> bool:
        raise TypeError(f"a strength is not a truth value: compare with Strength.PROVED (this one is {self.value})")


def worst_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of some verdicts, in the order refuted, unsupported, undecided, holds; undecided if there are none."""
    order = [Verdict.HOLDS, Verdict.UNDECIDED, Verdict.UNSUPPORTED, Verdict.REFUTED]
    return max(verdicts, key=order.index, default=Verdict.UNDECIDED)


def weakest_strength(strengths: Iterable[Strength]) -> Strength:
    """The strength of a conjunction: that of its weakest part; sampled if it has no parts."""
    order = list(Strength)
    return max(strengths, key=order.index, default=Strength.SAMPLED)
