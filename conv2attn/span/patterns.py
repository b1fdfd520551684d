"""The equations of one layer, portion after portion: its attention at some queries, and the keys asked for there.

One-hot rows need no key that nobody reads: a query is then a pattern of equal and different keys among those that its
heads read and its taps ask for, queries with one pattern have the same equations with the keys renamed, and each
pattern is looked at once, counted as often as it occurs. That is exact, whatever the size of the grid.

A row is numbered `image * queries + query`, and a group is some of these numbers, in order.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from conv2attn.span.attention_rows import Array, AttentionRows, Whole
from conv2attn.span.targets import Targets

PATTERN_ENTRIES = 2**14
"""Entries of a head in a portion of patterns."""


@final
@dataclass(frozen=True, eq=False)
class Portion:
    """Some rows: `attention` (heads, rows, keys), and for each tap the key asked for, or -1.

    Row i stands for the `members` for which `kind` is i. `keys` (rows, keys) tells which keys of the grid those of the
    portion are, -1 where there is none; all of the grid, in order, where it is None.
    """

    rows: Whole
    attention: Array
    places: Whole
    members: Whole
    kind: Whole
    keys: Whole | None = None

    @property
    def times(self) -> Whole:
        """How many rows each stands for."""
        return np.bincount(self.kind, minlength=len(self.rows))

    def only(self, places: Whole) -> "Portion":
        """Some of its rows, each for itself."""
        rows = self.rows[places]
        keys = None if self.keys is None else self.keys[places]
        alone = np.arange(len(rows))
        return replace(
            self,
            rows=rows,
            attention=self.attention[:, places],
            places=self.places[:, places],
            members=rows,
            kind=alone,
            keys=keys,
        )


def portions(attention: AttentionRows, targets: Targets, group: Whole) -> Iterator[Portion]:
    """The portions of a group of rows.

    Raises:
        RuntimeError: not each row was looked at once.
    """
    count = 0
    for portion in read_portions(attention, targets, group):
        count += len(portion.members)
        yield portion
    if count != len(group):
        raise RuntimeError(f"{attention.name}: of {len(group)} rows, {count} were looked at")


def read_portions(attention: AttentionRows, targets: Targets, group: Whole) -> Iterator[Portion]:
    """The portions as they are read."""
    images, queries = np.divmod(group, targets.places.shape[1])
    for image in np.unique(images):
        asking = queries[images == image]
        first = int(image) * targets.places.shape[1]
        if attention.hot is not None:
            yield from patterns(first, asking, attention.hot[image][:, asking], targets.places[:, asking])
            continue
        for start in range(0, len(asking), attention.step):
            chunk = asking[start : start + attention.step]
            alone = np.arange(len(chunk))
            block = attention.read(int(image), chunk)
            yield Portion(first + chunk, block, targets.places[:, chunk], first + chunk, alone)


def patterns(first: int, asking: Whole, hot: Whole, places: Whole) -> Iterator[Portion]:
    """One-hot rows that read the keys `hot` (heads, queries), each pattern of equal and different keys once."""
    heads, keys = len(hot), np.concatenate([hot, places])
    labels = first_places(keys)
    kinds, chosen, kind = np.unique(labels, axis=1, return_index=True, return_inverse=True)
    used, kind = np.unique(kinds[kinds >= 0]), kind.reshape(-1)
    local = np.where(kinds >= 0, np.searchsorted(used, kinds), -1)
    step = max(1, PATTERN_ENTRIES // max(1, len(used)))
    for start in range(0, kinds.shape[1], step):
        part = slice(start, start + step)
        members_here = np.flatnonzero((kind >= start) & (kind < start + step))
        count = len(chosen[part])
        rows = np.zeros((heads, count, len(used)))
        rows[np.arange(heads)[:, None], np.arange(count), local[:heads, part]] = 1
        real = np.full((count, len(used)), -1)
        tap, place = np.nonzero(local[:, part] >= 0)
        real[place, local[:, part][tap, place]] = keys[:, chosen[part]][tap, place]
        members = first + asking[members_here]
        kinds_here = kind[members_here] - start
        yield Portion(first + asking[chosen[part]], rows, local[heads:, part], members, kinds_here, real)


def first_places(keys: Whole) -> Whole:
    """For each entry of a column the row in which its number first stands; -1 for the entries that are -1."""
    order = np.argsort(keys, axis=0, kind="stable")
    ordered = np.take_along_axis(keys, order, 0)
    new = np.concatenate([np.ones((1, keys.shape[1]), dtype=bool), ordered[1:] != ordered[:-1]])
    run = np.maximum.accumulate(np.where(new, np.arange(len(keys))[:, None], 0), 0)
    labels = np.empty_like(keys)
    np.put_along_axis(labels, order, np.take_along_axis(order, run, 0), 0)
    return np.where(keys < 0, -1, labels)
