"""Gains of one start over another: Student's t over pairs of runs of one seed, and Holm's correction for their number.

`gains["over mimetic"].text` is "2.11 +- 0.51 (p .015, .713)": mean, standard error, p alone, and p corrected.
"""

import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar, final

from conv2attn.lab.run_rows import mean_and_error

LEVEL = 0.05
"""Chosen as usual: of twenty tables of starts that do not differ, one has a gain that is called clear."""
Key = TypeVar("Key", bound=Hashable)


@final
@dataclass(frozen=True)
class Gain:
    """The gains of one start over another, seed by seed; `corrected` is p after Holm's correction."""

    values: tuple[float, ...]
    corrected: float | None = None

    @classmethod
    def of(cls, own: Mapping[str, float], other: Mapping[str, float]) -> Self:
        """The gains of the seeds that both have."""
        return cls(tuple(own[seed] - other[seed] for seed in sorted(own.keys() & other)))

    @property
    def p(self) -> float | None:
        """How probable so large a mean of either sign is where there is no gain; None for fewer than two runs.

        Source: Student 1908; the gains are taken as draws of a normal distribution.
        """
        from scipy.special import stdtr

        count = len(self.values)
        if count < 2:
            return None
        mean, error = abs(statistics.fmean(self.values)), statistics.stdev(self.values) / count**0.5
        # Equal gains of all seeds are no proof, since accuracies are whole numbers of images; p is then 0 or 1.
        return float(2 * stdtr(count - 1, -mean / error)) if error else float(not mean)

    @property
    def clear(self) -> bool:
        """Whether the gain is clear of zero after correction."""
        return self.corrected is not None and self.corrected <= LEVEL

    @property
    def text(self) -> str:
        """Mean and standard error, and in brackets p and p corrected."""
        shown = mean_and_error(self.values)
        if self.p is None or self.corrected is None:
            return shown
        return f"{shown} (p {probability(self.p)}, {probability(self.corrected)})"

    def reversed(self) -> "Gain":
        """The gain of the other start over this one."""
        return Gain(tuple(-value for value in self.values), self.corrected)


def corrected_gains(gains: Mapping[Key, Gain]) -> dict[Key, Gain]:
    """Some gains, each with its p corrected for their number, so that at level .05 one of twenty such tables has any
    gain below it where there is none at all.

    Source: Holm 1979. Nothing is assumed of how the gains depend on each other.
    """
    tested = sorted((key for key in gains if gains[key].p is not None), key=lambda key: gains[key].p or 0.0)
    found, largest = dict(gains), 0.0
    for rank, key in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - rank) * (gains[key].p or 0.0)))
        found[key] = Gain(gains[key].values, largest)
    return found


def probability(p: float) -> str:
    """Three digits.

    >>> probability(0.0314), probability(0.0001), probability(1)
    ('.031', '<.001', '1')
    """
    if p < 0.0005:
        return "<.001"
    return "1" if p > 0.9995 else f"{p:.3f}"[1:]


def pooled(parts: Sequence[Gain]) -> Gain:
    """The gains of one comparison that was made more than once, from other seeds each time."""
    return Gain(tuple(value for part in parts for value in part.values))
