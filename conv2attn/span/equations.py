"""The equations of one layer: its targets, and both sides of the linear system, read in portions of rows.

Targets are shifts, or combinations of shifts that one convolution uses. A row is numbered
`image * queries + query`, and a group is a sorted list of row numbers.

One-hot rows are reduced to patterns. The equations of a query depend only on coincidences among the keys that its
heads read and its taps name. Queries with the same pattern have the same equations, with the keys renamed. So each
pattern is read once and counted as often as it occurs. This is exact on grids of every size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from conv2attn.layers.theorem import Convolution, combinations, tap_matrix
from conv2attn.span.attention_rows import ROUNDOFF, Array, AttentionRows, Whole
from conv2attn.span.grids import Grid
from conv2attn.theory.basis import Offset
from conv2attn.theory.bounds import gamma


@final
@dataclass(frozen=True, eq=False)
class Targets:
    """Combinations of shifts: target j is `sum_t coefficients[j, t] e_{q + offset_t}` at query q.

    Here e_k is one-hot at key k. `places` (taps, queries) is the key of a tap at a query; it is -1 if that key is off
    the grid, and the term is 0.
    """

    offsets: tuple[Offset, ...]
    places: NDArray[np.int64]
    coefficients: Array
    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.coefficients)

    @property
    def plain(self) -> bool:
        """Whether each target is one shift."""
        return np.array_equal(self.coefficients, np.eye(len(self.offsets)))

    @cached_property
    def largest(self) -> Array:
        """For each target, the largest 1-norm over the queries, rounded up: (targets)."""
        sums: Array = (np.abs(self.coefficients) @ (self.places >= 0)).max(1, initial=0.0)
        # A sum of non-negative numbers has a small relative error. The sum for a shift is a single 1, which is exact.
        several = (self.coefficients != 0).sum(1) > 1
        return sums * np.where(several, 1 + 2 * gamma(len(self.places), ROUNDOFF["float64"]), 1.0)

    @property
    def interior(self) -> NDArray[np.bool_]:
        """The queries whose whole neighbourhood is on the grid."""
        return np.asarray((self.places >= 0).all(0))

    def block(self, queries: NDArray[np.int64], keys: int) -> Array:
        """The rows of the targets at these queries: (targets, queries, keys)."""
        rows = np.zeros((len(self), len(queries), keys))
        for tap, places in enumerate(self.places[:, queries]):
            inside = np.flatnonzero(places >= 0)
            rows[:, inside, places[inside]] += self.coefficients[:, tap, None]
        return rows


def shift_targets(grid: Grid, offsets: Sequence[Offset]) -> Targets:
    """One target per offset."""
    sites = np.stack(np.meshgrid(*(grid.site(a).numpy() for a in range(len(grid.keys))), indexing="ij"), -1)
    moves = np.array(offsets, dtype=np.int64).reshape(-1, 1, len(grid.keys))
    coordinates = sites.reshape(1, -1, len(grid.keys)) + moves
    inside = np.asarray(((coordinates >= 0) & (coordinates < np.array(grid.keys))).all(-1))
    flat = np.ravel_multi_index(tuple(np.moveaxis(np.where(inside[..., None], coordinates, 0), -1, 0)), grid.keys)
    labels = tuple(",".join(map(str, offset)) for offset in offsets)
    return Targets(tuple(offsets), np.where(inside, flat, -1), np.eye(len(offsets)), labels)


def kernel_targets(attention: AttentionRows, convolution: Convolution, roundoff: float) -> Targets:
    """The combinations of shifts that the weights use; taps of zeros are left out."""
    matrix = tap_matrix(convolution)
    # A tap of zeros changes no output, but as a target it might need another head.
    used = np.flatnonzero(matrix.any(1))
    columns = combinations(matrix[used], roundoff)
    one_for_each = shift_targets(attention.grid, [convolution.offsets[t] for t in used])
    labels = tuple(f"combination {j}" for j in range(columns.shape[1]))
    return replace(one_for_each, coefficients=columns.T.copy(), labels=labels)


def weights_on(convolution: Convolution, targets: Targets) -> tuple[Array, Array]:
    """The weights of the convolution as one row per used tap, and as one row per target."""
    places = {offset: t for t, offset in enumerate(convolution.offsets)}
    used = tap_matrix(convolution)[[places[offset] for offset in targets.offsets]]
    # Up to rounding, the targets span the weights of the taps, so least squares gives the weights on the targets.
    parts = used if targets.plain else np.asarray(np.linalg.lstsq(targets.coefficients.T, used, rcond=None)[0], float)
    return used, parts


def head_taps(convolution: Convolution, targets: Targets, mixing: Array) -> Array:
    """`W_val W_out` of each head for a mixing (targets, heads): (heads, d_out, d_in / groups)."""
    _, parts = weights_on(convolution, targets)
    taps: Array = (mixing.T @ parts).reshape(mixing.shape[1], convolution.d_out, -1)
    return taps


def largest_rank(convolution: Convolution, targets: Targets, mixing: Array, roundoff: float) -> int:
    """The largest rank of a head's channel matrix within a group, up to rounding of the weights."""
    taps = head_taps(convolution, targets, mixing)
    blocks = taps.reshape(len(taps), convolution.groups, -1, taps.shape[2])
    singular = np.linalg.svd(blocks, compute_uv=False)
    # Singular values below this may come from rounding of the weights, and must not ask for a wider head.
    threshold = 4 * max(blocks.shape[2:]) * roundoff * singular.max()
    return int((singular > threshold).sum(-1).max())


PATTERN_ENTRIES = 2**14
"""Largest number of entries of one head in a portion of patterns."""


@final
@dataclass(frozen=True, eq=False)
class Portion:
    """Some rows of the system, of which each may represent several equal rows.

    Args:
        rows: numbers of the rows.
        attention: attention of the heads, (heads, rows, keys).
        places: the key of each tap, or -1, (taps, rows).
        members: numbers of all rows that are represented.
        kind: for each member, the index in `rows` of the row that represents it.
        keys: the places in the grid of this portion's keys, (rows, keys), with -1 for unused columns; None if the keys
            are all keys of the grid, in order.
    """

    rows: Whole
    attention: Array
    places: Whole
    members: Whole
    kind: Whole
    keys: Whole | None = None

    @property
    def times(self) -> Whole:
        """The number of rows that each row represents."""
        return np.bincount(self.kind, minlength=len(self.rows))

    def only(self, places: Whole) -> "Portion":
        """The portion of these rows, in which every row represents only itself."""
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
        RuntimeError: a row was left out or read twice.
    """
    count = 0
    for portion in read_portions(attention, targets, group):
        count += len(portion.members)
        yield portion
    # A verdict is about all queries, so no row may be skipped.
    if count != len(group):
        raise RuntimeError(f"{attention.name}: of {len(group)} rows, {count} were read")


def read_portions(attention: AttentionRows, targets: Targets, group: Whole) -> Iterator[Portion]:
    """The portions of a group of rows, without the check of `portions`."""
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
    """One-hot rows that read the keys `hot` (heads, queries), with every pattern of equal keys once."""
    heads, keys = len(hot), np.concatenate([hot, places])
    # The equations depend only on which keys are equal, so a key is named by the index of the first head or tap that
    # has it: three heads that read 7, 9, 7 and a tap at 9 become 0, 1, 0, 1.
    labels = first_places(keys)
    kinds, chosen, kind = np.unique(labels, axis=1, return_index=True, return_inverse=True)
    used, kind = np.unique(kinds[kinds >= 0]), kind.reshape(-1)
    local = np.where(kinds >= 0, np.searchsorted(used, kinds), -1)
    # All patterns in one array would be large if a few of them need most of the keys.
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
    """For each entry of a column, the index of the first equal entry of the column; -1 for entries that are -1."""
    # The sort is stable, so the first of several equal numbers is also the first one in the column.
    order = np.argsort(keys, axis=0, kind="stable")
    ordered = np.take_along_axis(keys, order, 0)
    new = np.concatenate([np.ones((1, keys.shape[1]), dtype=bool), ordered[1:] != ordered[:-1]])
    run = np.maximum.accumulate(np.where(new, np.arange(len(keys))[:, None], 0), 0)
    labels = np.empty_like(keys)
    np.put_along_axis(labels, order, np.take_along_axis(order, run, 0), 0)
    return np.where(keys < 0, -1, labels)
