"""`SummedHead`: the sums of one head over all queries and images, from which the rules of its facts compute numbers."""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from conv2attn.span.attention_rows import Array
from conv2attn.span.graded_facts.sums import Sums


@final
@dataclass(frozen=True, eq=False)
class SummedHead:
    """The sums of one head over all queries and images, its shares, and the place of its peak in `mass`."""

    head: int
    sums: Sums
    shares: tuple[float | None, ...]
    peak: int

    @property
    def count(self) -> int:
        """Queries of all images."""
        return self.sums.images * self.sums.queries

    @cached_property
    def mass(self) -> Array:
        """m(d), the mean attention by displacement; displacement 0 is in the middle of each axis."""
        return np.asarray(self.sums.mass[:, self.head].sum(0) / self.count)

    def mean(self, name: str) -> float:
        """The mean over queries of one of the sums."""
        return float(getattr(self.sums, name)[:, self.head].sum() / self.count)

    def displacement(self, place: int) -> tuple[int, ...]:
        """The displacement of a row-major place in `mass`."""
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
        """Keys in use over the keys that a query may read, both as geometric means over queries."""
        return float(np.exp(self.mean("entropy") - self.sums.room / self.sums.queries))

    def sink(self) -> float:
        """The largest share that one key has of the queries that may read it; see its line of `FACTS`."""
        # A key that few queries may read may get all of these few, and would be a sink by its mask alone. It counts as
        # read by at least half as many queries as the key with the most readers.
        readers = np.maximum(self.sums.readers, self.sums.readers.max() / 2)
        return float((self.sums.columns[self.head] / readers).max())
