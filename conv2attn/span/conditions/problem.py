"""Attention rows in chunks of queries, and the shifts that they should span."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from conv2attn.basis import Offset, as_matrix
from conv2attn.errors import UsageError
from conv2attn.span.sources.grids import Grid

Array = NDArray[np.float64]
Piece = tuple[int, slice, Array]


@final
@dataclass(frozen=True, eq=False)
class AttentionRows:
    """The attention of one layer, (heads, images * queries, keys + extra), read in chunks.

    Args:
        name: of the layer.
        heads, images, grid: its shape; images that share one set of weights are stacked.
        roundoff: unit roundoff of the dtype that the attention came in.
        ulps: entrywise uncertainty in units of `roundoff`; 0 where the numbers are the operator itself.
        pieces: yields (image, queries, attention (heads, queries, keys) in float64), as often as it is called; of one
            image if its number is passed.
        one_hot: every row is bitwise one-hot.
        hot: (images, heads, queries), the keys that one-hot rows read, where they are known.
        rational: the ideal operator's row of (head, image * queries + query), where it is rational.
        sampled: attention depends on the input, and these images are samples.
        content: share of the squared attention that varies over the images.
        d_head: width of the heads, where known.
        notes: what was done to the attention before.
        extra: keys that are no pixels (class tokens, registers): the last columns, of which targets ask for nothing.
    """

    name: str
    heads: int
    images: int
    grid: Grid
    roundoff: float
    ulps: int
    pieces: Callable[..., Iterator[Piece]]
    one_hot: bool = False
    rational: Callable[[int, int], list[Fraction]] | None = None
    sampled: bool = False
    content: float = 0.0
    d_head: int | None = None
    notes: tuple[str, ...] = ()
    hot: NDArray[np.int64] | None = None
    extra: int = 0

    @property
    def width(self) -> int:
        """Number of keys, those that are no pixels included."""
        return self.grid.shape[1] + self.extra

    @property
    def exact(self) -> bool:
        """Whether the rational rows are the operator itself, declared so, and not what floats are meant to be."""
        return self.rational is not None and self.ulps == 0

    def only(self, image: int) -> "AttentionRows":
        """One image of them."""
        if self.images == 1:
            return self
        given, first = self.rational, image * self.grid.shape[0]
        moved = None if given is None else lambda head, row: given(head, first + row)
        pieces = partial(alone, self.pieces, image)
        hot = None if self.hot is None else self.hot[image : image + 1]
        return replace(self, images=1, pieces=pieces, rational=moved, hot=hot)

    def average(self) -> "AttentionRows":
        """The mean over the images, as one image: exact only where the images were declared so.

        Each image that is added rounds once, and the division once; sums of zeros and ones are exact.
        """

        def pieces() -> Iterator[Piece]:
            first, *others = (self.pieces(image) for image in range(self.images))
            for _, rows, total in first:
                for other in others:
                    total = total + next(other)[2]
                yield 0, rows, total / self.images

        if self.exact:
            return replace(self, images=1, pieces=pieces, one_hot=False, rational=self.mean_row, hot=None)
        rounded = 1 if self.one_hot else math.ceil(self.images * 2.0**-53 / self.roundoff)
        ulps = self.ulps + rounded
        return replace(self, images=1, pieces=pieces, one_hot=False, rational=None, ulps=ulps, hot=None)

    def renormalised(self) -> "AttentionRows | None":
        """Rows of the pixels alone, divided by what they have of each row: an operator that no layer computes.

        None where a query attends to no pixel. Each entry is divided by a sum that is as uncertain as it is.
        """
        pixels, rational = self.grid.shape[1], self.rational
        if any(not (block[..., :pixels].sum(-1) > 0).all() for _, _, block in self.pieces()):
            return None

        def pieces(*images: int) -> Iterator[Piece]:
            for image, rows, block in self.pieces(*images):
                kept = block[..., :pixels]
                yield image, rows, kept / kept.sum(-1, keepdims=True, dtype=np.longdouble).astype(np.float64)

        def row(head: int, query: int) -> list[Fraction]:
            assert rational is not None
            kept = rational(head, query)[:pixels]
            return [x / sum(kept, Fraction(0)) for x in kept]

        summed = math.ceil(pixels * float(np.finfo(np.longdouble).eps) / self.roundoff) if self.roundoff else 0
        ulps = 2 * self.ulps + 3 + summed if self.ulps else 0
        exactly = None if rational is None else row
        return replace(self, pieces=pieces, rational=exactly, ulps=ulps, hot=None, extra=0, sampled=True)

    def mean_row(self, head: int, query: int) -> list[Fraction]:
        """The exact mean over the images of one row."""
        assert self.rational is not None
        rows = [self.rational(head, image * self.grid.shape[0] + query) for image in range(self.images)]
        return [sum(column, Fraction(0)) / self.images for column in zip(*rows, strict=True)]


@final
@dataclass(frozen=True, eq=False)
class Targets:
    """Combinations of shifts: row j asks for `sum_t coefficients[j, t] e_{q + offset_t}` at each query q.

    `places` is the key of (offset, query), or -1 where it leaves the grid and zero is asked for. Operators that are no
    shifts have empty offsets: at each query an offset stands for some entry with these coefficients, or for none.
    """

    offsets: tuple[Offset, ...]
    places: NDArray[np.int64]
    coefficients: Array
    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.coefficients)

    @property
    def plain(self) -> bool:
        """Whether each row asks for one shift."""
        return np.array_equal(self.coefficients, np.eye(len(self.offsets)))

    @cached_property
    def largest(self) -> Array:
        """The largest sum of absolute values that a row of each target has at one query, (targets)."""
        asked: Array = (np.abs(self.coefficients) @ (self.places >= 0)).max(1, initial=0.0)
        return asked

    @property
    def interior(self) -> NDArray[np.bool_]:
        """The queries whose whole neighbourhood is on the grid."""
        return np.asarray((self.places >= 0).all(0))

    def block(self, queries: NDArray[np.int64], keys: int) -> Array:
        """The rows asked for at these queries: (targets, queries, keys)."""
        asked = np.zeros((len(self), len(queries), keys))
        for tap, places in enumerate(self.places[:, queries]):
            there = np.flatnonzero(places >= 0)
            asked[:, there, places[there]] += self.coefficients[:, tap, None]
        return asked


def shifts(grid: Grid, offsets: Sequence[Offset]) -> Targets:
    """One target for each offset."""
    sites = np.stack(np.meshgrid(*(grid.site(a).numpy() for a in range(len(grid.keys))), indexing="ij"), -1)
    asked = sites.reshape(1, -1, len(grid.keys)) + np.array(offsets, dtype=np.int64).reshape(-1, 1, len(grid.keys))
    inside = np.asarray(((asked >= 0) & (asked < np.array(grid.keys))).all(-1))
    flat = np.ravel_multi_index(tuple(np.moveaxis(np.where(inside[..., None], asked, 0), -1, 0)), grid.keys)
    labels = tuple(",".join(map(str, offset)) for offset in offsets)
    return Targets(tuple(offsets), np.where(inside, flat, -1), np.eye(len(offsets)), labels)


def operators_of(structure: Any, grid: Grid) -> Targets:
    """One target for each operator of a family on the keys of a grid, whose numbers count as they are in float64.

    Entries that are equal in all operators, one a query, share an offset.

    Raises:
        UsageError: its queries are not those of the grid, or its numbers are not finite (C2A504).
    """
    whole = as_matrix(structure, grid.keys).detach().numpy()
    if whole.shape[1:] != grid.shape:
        raise UsageError("C2A504", f"operators of {whole.shape[1]} queries, where the attention has {grid.shape[0]}")
    if not np.isfinite(whole).all():
        raise UsageError("C2A504", "the operators that are asked for are not finite")
    query, key = np.nonzero(whole.any(0))
    kinds, kind = np.unique(whole[:, query, key].T, axis=0, return_inverse=True)
    pairs = np.stack([kind.reshape(-1), query])
    order = np.lexsort(pairs[::-1])
    new = np.concatenate([[True], (np.diff(pairs[:, order]) != 0).any(0)])[: len(order)]
    slot = np.arange(len(order)) - np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    counts = np.zeros(len(kinds), dtype=np.int64)
    np.maximum.at(counts, pairs[0, order], slot + 1)
    places = np.full((int(counts.sum()), grid.shape[0]), -1)
    places[(np.cumsum(counts) - counts)[pairs[0, order]] + slot, query[order]] = key[order]
    coefficients = np.repeat(kinds.reshape(-1, len(whole)), counts, axis=0).T
    labels = tuple(f"operator {term}" for term in range(len(whole)))
    return Targets(((),) * len(places), places, np.ascontiguousarray(coefficients), labels)


def alone(pieces: Callable[..., Iterator[Piece]], image: int) -> Iterator[Piece]:
    """The pieces of one image, as the first."""
    return ((0, rows, block) for _, rows, block in pieces(image))


def selected(attention: AttentionRows, chosen: NDArray[np.bool_]) -> Iterator[tuple[int, NDArray[np.int64], Array]]:
    """The pieces of the chosen queries: (image, queries, attention (heads, queries, keys))."""
    for image, rows, block in attention.pieces():
        queries = np.arange(rows.start, rows.stop)
        kept = chosen[queries]
        if kept.all():
            yield image, queries, block
        elif kept.any():
            yield image, queries[kept], block[:, kept]
