"""The equations of one layer, portion after portion: its attention at some queries, and the keys asked for there.

One-hot rows need no key that nobody reads: a query is then a pattern of equal and different keys among those that its
heads read and its taps ask for, queries with one pattern have the same equations with the keys renamed, and each
pattern is looked at once, counted as often as it occurs. That is exact, whatever the size of the grid.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from conv2attn.span.conditions.problem import Array, AttentionRows, Targets, selected

Whole = NDArray[np.int64]
CLASSES = 2**14
"""Entries of a head in a portion of patterns."""


@final
@dataclass(frozen=True, eq=False)
class Portion:
    """Queries of one image: `attention` (heads, queries, keys), and for each tap the key asked for, or -1.

    Query i stands for the `times[i]` of the `members` for which `kind` is i. `keys` (queries, keys) tells which keys of
    the grid those of the portion are, -1 where there is none; all of the grid, in order, where it is None.
    """

    image: int
    queries: Whole
    attention: Array
    places: Whole
    members: Whole
    kind: Whole
    keys: Whole | None = None

    @property
    def times(self) -> Whole:
        """How many queries each stands for."""
        return np.bincount(self.kind, minlength=len(self.queries))

    def parts(self, step: int) -> Iterator["Portion"]:
        """At most so many queries at a time, where each stands for itself."""
        if self.keys is not None or len(self.queries) <= step:
            yield self
            return
        for start in range(0, len(self.queries), step):
            yield self.only(np.arange(start, min(start + step, len(self.queries))))

    def only(self, places: Whole) -> "Portion":
        """Some of its queries, each for itself."""
        mine = self.queries[places]
        return replace(
            self,
            queries=mine,
            attention=self.attention[:, places],
            places=self.places[:, places],
            members=mine,
            kind=np.arange(len(mine)),
            keys=None if self.keys is None else self.keys[places],
        )


def shared(attention: AttentionRows, targets: Targets, chosen: NDArray[np.bool_]) -> Iterator[Portion]:
    """The portions of the chosen queries of all images.

    Raises:
        RuntimeError: not each query was looked at once.
    """
    size = len(chosen)
    seen = np.zeros(attention.images * size, dtype=np.int64)
    for portion in portions(attention, targets, chosen):
        seen += np.bincount(portion.image * size + portion.members, minlength=len(seen))
        yield portion
    looked = seen - np.tile(chosen, attention.images)
    if looked.any():
        image, query = divmod(int(np.flatnonzero(looked)[0]), size)
        times = 1 + int(looked[image * size + query])
        raise RuntimeError(f"{attention.name}: image {image}, query {query} was looked at {times} times, not once")


def portions(attention: AttentionRows, targets: Targets, chosen: NDArray[np.bool_]) -> Iterator[Portion]:
    """All portions of the chosen queries of all images."""
    if attention.hot is not None:
        asking = np.flatnonzero(chosen)
        for image, hot in enumerate(attention.hot):
            yield from patterns(image, asking, hot[:, asking], targets.places[:, asking])
        return
    for image, queries, block in selected(attention, chosen):
        yield Portion(image, queries, block, targets.places[:, queries], queries, np.arange(len(queries)))


def patterns(image: int, asking: Whole, hot: Whole, places: Whole) -> Iterator[Portion]:
    """One-hot rows that read the keys `hot` (heads, queries), each pattern of equal and different keys once."""
    heads, keys = len(hot), np.concatenate([hot, places])
    labels = first_places(keys)
    kinds, first, kind = np.unique(labels, axis=1, return_index=True, return_inverse=True)
    used, kind = np.unique(kinds[kinds >= 0]), kind.reshape(-1)
    local = np.where(kinds >= 0, np.searchsorted(used, kinds), -1)
    step = max(1, CLASSES // max(1, len(used)))
    for start in range(0, kinds.shape[1], step):
        part = slice(start, start + step)
        mine = np.flatnonzero((kind >= start) & (kind < start + step))
        count = len(first[part])
        rows = np.zeros((heads, count, len(used)))
        rows[np.arange(heads)[:, None], np.arange(count), local[:heads, part]] = 1
        real = np.full((count, len(used)), -1)
        tap, place = np.nonzero(local[:, part] >= 0)
        real[place, local[:, part][tap, place]] = keys[:, first[part]][tap, place]
        yield Portion(image, asking[first[part]], rows, local[heads:, part], asking[mine], kind[mine] - start, real)


def first_places(keys: Whole) -> Whole:
    """For each entry of a column the row in which its number first stands; -1 for the entries that are -1."""
    order = np.argsort(keys, axis=0, kind="stable")
    ordered = np.take_along_axis(keys, order, 0)
    new = np.concatenate([np.ones((1, keys.shape[1]), dtype=bool), ordered[1:] != ordered[:-1]])
    run = np.maximum.accumulate(np.where(new, np.arange(len(keys))[:, None], 0), 0)
    labels = np.empty_like(keys)
    np.put_along_axis(labels, order, np.take_along_axis(order, run, 0), 0)
    return np.where(keys < 0, -1, labels)
