"""One pass over the attention of a layer, which forms all sums from which the facts of its heads follow.

Let A be the attention of a head, and let D be A minus the mean of each row over the keys that the row may attend to.
`mass` and `deviation` are the sums of A and of D by displacement, and `squares` is the sum of D^2. The sums of several
blocks of queries are added up.
"""

from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from math import prod
from typing import final

import numpy as np

from conv2attn.networks.reading import Windows
from conv2attn.span.attention_rows import Array, AttentionRows, Whole
from conv2attn.span.grids import Grid
from conv2attn.span.least_squares import triangles, triangular
from conv2attn.theory.basis import Offset

ALLOWED = 1e-30
"""A key counts as masked for a query if no head in any image gives it more weight than this (exp(-69))."""
BLOCKS = 8
"""Number of blocks of queries from which standard errors are estimated if there are two images."""
BY_AXIS = 2**24
"""If attention has more entries than this, heads whose rows are outer products over the axes are summed by axis."""


@final
@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over queries.

    Axis 0 is the image, unless said otherwise. Displacement 0 is in the middle of the axes of displacements.

    Attributes:
        queries: number of queries of one image.
        squares: sums of D^2.
        along: `<D_i, sum_j D_j>` for image i and all images j.
        total: `|sum_j D_j|^2` over all images j, without an axis of images.
        energy: sums of A^2.
        mass, deviation: sums of A and of D by displacement.
        pairs: for each displacement, the number of (query, key) pairs whose query may attend to the key, in one image.
        having: for each displacement, the number of queries for which it is on the grid, in one image.
        scatter: sums of D^2 by displacement, if there is only one image.
        factor: R of the QR of the rows of A, with one column per head.
        entropy, largest, distance, extra: sums over queries of the numbers whose means are in `HeadFacts`.
        argmax: for each displacement, the number of queries of all images whose largest weight is there.
        columns: for each key, the attention to it over all images.
        readers: for each key, the number of queries of all images that may attend to it.
        room: sum over queries of the logarithm of the number of keys that a query may attend to.
        centers: sums over queries of a moved centre and of its square, (images, heads, axes + 1).
    """

    queries: int
    squares: Array
    along: Array
    total: Array
    energy: Array
    mass: Array
    deviation: Array
    pairs: Array
    having: Array
    scatter: Array | None
    factor: Array
    entropy: Array
    largest: Array
    distance: Array
    extra: Array
    argmax: Array
    columns: Array
    readers: Array
    room: float
    centers: Array | None = None

    @property
    def images(self) -> int:
        """Number of images."""
        return len(self.squares)

    def __add__(self, other: "Sums") -> "Sums":
        """The sums over the queries of both operands."""
        added = {name: value + getattr(other, name) for name, value in vars(self).items() if value is not None}
        # R is not a sum. The R of both blocks of rows is the R of the matrix that stacks their two R.
        factor = np.linalg.qr(np.concatenate([self.factor, other.factor], 1), mode="r")
        return replace(self, **(added | {"factor": factor}))

    def at(self, offsets: tuple[Offset, ...]) -> tuple[Array, Array]:
        """`mass` (images, heads, offsets) and `having` (offsets) at some offsets; 0 beyond the grid."""
        return self.numbers_at(self.mass, offsets), self.numbers_at(self.having, offsets)

    def numbers_at(self, numbers: Array, offsets: tuple[Offset, ...]) -> Array:
        """The entries of `numbers` (..., displacements) at some offsets: (..., offsets), with 0 beyond the grid."""
        shape, middle = self.having.shape, np.array(self.having.shape) // 2
        places = np.array(offsets).reshape(len(offsets), len(shape)) + middle
        inside = ((places >= 0) & (places < np.array(shape))).all(-1)
        chosen: Array = numbers[(..., *np.where(inside[:, None], places, 0).T)] * inside
        return chosen


def kernel(size: int, dilation: int, axes: int) -> tuple[Offset, ...]:
    """The offsets of a kernel with an odd number of taps per axis."""
    along = [dilation * (t - size // 2) for t in range(size)]
    return tuple(product(along, repeat=axes))


def sums_of(rows: AttentionRows, windows: Windows | None = None) -> list[Sums]:
    """The sums of a layer, in one part; for two images in several parts, which add up to the sums."""
    if rows.axes is not None and windows is None and rows.heads * prod(rows.grid.shape) > BY_AXIS:
        return [sums_by_axis(rows)]
    pieces = list_of_pieces(rows, windows)
    if len(pieces[0][2]) != 2:
        return [reduce(Sums.__add__, (sums_at(rows, windows, *piece) for piece in pieces))]
    # If one of two images is left out, no pair of different images remains. So the jackknife leaves out blocks of
    # queries instead. Pieces are dealt to the blocks in turn, so that every block has queries from all over the grid.
    parts = [sums_at(rows, windows, *piece) for piece in pieces]
    starts = range(min(BLOCKS, len(parts)))
    return [reduce(Sums.__add__, parts[start :: len(starts)]) for start in starts]


def list_of_pieces(rows: AttentionRows, windows: Windows | None) -> list[tuple[Whole, Whole, list[int]]]:
    """Queries and keys that are read together, as numbers in the grid of an image, and the images that are read.

    If there are two images, a piece has at most a block of the queries. With windows, an image of `rows` is a
    window.
    """
    if windows is not None:
        count = len(windows.places)
        return [
            (places, keys, [image * count + window for image in range(rows.images // count)])
            for window, (places, keys) in enumerate(zip(windows.places, windows.keys, strict=True))
        ]
    queries, pixels = rows.grid.shape
    step = max(1, rows.step // rows.images)
    if rows.images == 2:
        step = min(step, -(-queries // BLOCKS))
    everything = np.arange(queries)
    return [
        (everything[start : start + step], np.arange(pixels), list(range(rows.images)))
        for start in range(0, queries, step)
    ]


def coordinates(grid: Grid, queries: Whole) -> list[Whole]:
    """The key coordinates of some queries, axis by axis."""
    places = np.unravel_index(queries, grid.queries)
    return [grid.site(axis).cpu().numpy()[along] for axis, along in enumerate(places)]


def sums_at(rows: AttentionRows, windows: Windows | None, queries: Whole, keys: Whole, images: list[int]) -> Sums:
    """The sums of one piece of `list_of_pieces`."""
    grid = rows.grid if windows is None else windows.grid
    real, there = queries >= 0, keys >= 0
    read = np.arange(len(queries)) if windows is not None else queries
    blocks = np.stack([rows.read(image, read) for image in images])
    if windows is not None:
        blocks = blocks[:, :, real][..., there]
        queries, keys = queries[real], keys[there]
    count, heads = blocks.shape[:2]
    pixels = blocks[..., : len(keys)]
    shape = tuple(2 * side - 1 for side in grid.keys)
    place, away, size = np.zeros((len(queries), len(keys)), np.int64), np.zeros((len(queries), len(keys))), prod(shape)
    at_key = np.unravel_index(keys, grid.keys)
    for axis, site in enumerate(coordinates(grid, queries)):
        moved = at_key[axis][None, :] - site[:, None]
        # Every displacement gets one number, so that `bincount` sums over the pairs with this displacement.
        place = place * shape[axis] + moved + grid.keys[axis] - 1
        away = away + moved**2
    # In one-hot or positional attention, a zero is a weight and not a mask of the network.
    unmasked = rows.one_hot or rows.by_position or bool(pixels.min() > ALLOWED)
    allowed = np.ones(place.shape, bool) if unmasked else pixels.max((0, 1)) > ALLOWED
    width = np.maximum(allowed.sum(-1), 1)

    def by_displacement(values: Array) -> Array:
        """Sums (..., displacements) of values (..., queries, keys)."""
        flat = values.reshape(-1, place.size)
        summed = [np.bincount(place.ravel(), weights, size) for weights in flat]
        return np.array(summed, dtype=np.float64).reshape(*values.shape[:-2], *shape)

    # D = A - level on `width` keys, where level is the mean of the row. Hence <D, D'> = <A, A'> - width level level',
    # and D itself is not formed. The three sums below are |D_i|^2, <D_i, sum D> and |sum D|^2.
    level, total = pixels.sum(-1) / width, pixels.sum(0)
    energy, mass = np.einsum("nhqk,nhqk->nh", pixels, pixels), by_displacement(pixels)
    own = energy - np.einsum("nhq,nhq,q->nh", level, level, width)
    along = np.einsum("nhqk,hqk->nh", pixels, total) - np.einsum("nhq,hq,q->nh", level, level.sum(0), width)
    every = np.einsum("hqk,hqk->h", total, total) - np.einsum("hq,hq,q->h", level.sum(0), level.sum(0), width)
    deviation = mass - by_displacement(level[..., None] * allowed)
    # If there is one image, and attention may depend on it, only products of different queries are free of bias. These
    # follow from the sums of squares.
    alone = count == 1 and not rows.by_position
    scatter = by_displacement(np.where(allowed, pixels[0] - level[0][..., None], 0.0) ** 2) if alone else None
    # A log in float32 costs less than in float64, and its error is far below the digits of a report. The maximum makes
    # 0 log 0 zero.
    logs = np.log(np.maximum(blocks.astype(np.float32), np.finfo(np.float32).tiny))
    best = np.take_along_axis(np.broadcast_to(place, pixels.shape), pixels.argmax(-1)[..., None], -1)[..., 0]
    most = [np.bincount(displacements.ravel(), minlength=size) for displacements in best.swapaxes(0, 1)]
    columns, readers = np.zeros((heads, grid.shape[1] + rows.extra)), np.zeros(grid.shape[1] + rows.extra)
    columns[:, keys], readers[keys] = total.sum(1), count * allowed.sum(0)
    if rows.extra:
        columns[:, -rows.extra :], readers[-rows.extra :] = blocks[..., len(keys) :].sum((0, 2)), count * len(queries)
    return Sums(
        len(queries),
        np.maximum(own, 0.0),
        along,
        every,
        energy,
        mass,
        deviation,
        by_displacement(allowed.astype(float)),
        having(grid, queries),
        scatter,
        triangles(blocks.reshape(count, heads, -1)),
        -np.einsum("nhqk,nhqk->nh", blocks, logs),
        blocks.max(-1).sum(-1),
        np.einsum("nhqk,qk->nh", pixels, np.sqrt(away)),
        (blocks.sum((2, 3)) - pixels.sum((2, 3))) if rows.extra else np.zeros((count, heads)),
        np.array(most, dtype=float).reshape(heads, *shape),
        columns,
        readers,
        float(np.log(width + rows.extra).sum()),
        None if rows.centers is None else sums_of_centers(rows.centers[images][:, :, queries]),
    )


def sums_of_centers(centers: Array) -> Array:
    """Sums over queries of centres (images, heads, queries, axes) and of their squares."""
    squares = np.square(centers).sum(-1, keepdims=True)
    return np.concatenate([centers, squares], -1).sum(2)


def factor_of_products(first: Array, second: Array) -> Array:
    """R of the QR of columns that are outer products of two columns, from the R of each factor."""
    # The Gram matrix of the outer products is the entrywise product of the two Gram matrices. The matrix whose rows are
    # all entrywise products of a row of the first R and a row of the second has the same Gram matrix. It is stacked
    # here, one row of the first R at a time.
    start: Array = second[:0]
    return reduce(lambda factor, row: triangular(np.concatenate([factor, row * second])), first, start)


def having(grid: Grid, queries: Whole) -> Array:
    """For each displacement, the number of these queries for which it is on the grid."""
    flat = np.ravel_multi_index(tuple(coordinates(grid, queries)), grid.keys)
    placed: Array = np.bincount(flat, minlength=prod(grid.keys)).astype(float).reshape(grid.keys)
    # On an axis with n keys, displacement d is on the grid for sites from max(0, -d) to n - max(0, d) - 1. The sum over
    # this interval is a difference of two cumulative sums. This is done for one axis after the other.
    for axis, side in enumerate(grid.keys):
        sums = np.concatenate([np.zeros_like(placed.take([0], axis)), placed.cumsum(axis)], axis)
        moved = np.arange(1 - side, side)
        placed = sums.take(np.minimum(side, side - moved), axis) - sums.take(np.maximum(0, -moved), axis)
    return placed


def sums_by_axis(rows: AttentionRows) -> Sums:
    """The sums of heads whose rows are outer products over the axes, without forming the attention."""
    # The sum over (query, key) of an outer product is the product of the sums over the axes. The logarithm of an outer
    # product is the sum of the logarithms. No key is masked and rows sum to 1, so the mean of a row is 1 / keys.
    assert rows.axes is not None
    axes, grid = rows.axes, rows.grid
    queries, keys = grid.shape
    masses, counts, tops, columns = [], [], [], []
    for axis, along in enumerate(axes):
        side = grid.keys[axis]
        place = np.arange(side)[None, :] - grid.site(axis).cpu().numpy()[:, None] + side - 1
        masses.append(np.array([np.bincount(place.ravel(), head.ravel(), 2 * side - 1) for head in along]))
        counts.append(np.bincount(place.ravel(), minlength=2 * side - 1).astype(float))
        best = np.take_along_axis(np.broadcast_to(place, along.shape), along.argmax(-1)[..., None], -1)[..., 0]
        tops.append(np.array([np.bincount(head, minlength=2 * side - 1) for head in best]).astype(float))
        columns.append(along.sum(1))

    def outer(parts: list[Array]) -> Array:
        """The outer products over the axes of parts (heads, entries)."""
        product_ = parts[0]
        for part in parts[1:]:
            product_ = product_[..., None] * part.reshape(len(part), *[1] * (product_.ndim - 1), -1)
        return product_

    mass, pairs = outer(masses), outer([count[None] for count in counts])[0]
    deviation = mass - pairs / keys
    energy = np.prod([np.einsum("hqk,hqk->h", a, a) for a in axes], 0)
    factor = reduce(factor_of_products, (triangles(a.reshape(1, rows.heads, -1))[0] for a in axes))
    # The sum of the entropies of an axis occurs once for every query of the other axes, hence the means.
    entropies = [-np.einsum("hqk,hqk->h", a, np.log(np.maximum(a, 1e-300))) / a.shape[1] for a in axes]
    away = np.sqrt(sum(np.square(x) for x in np.ogrid[tuple(slice(-(s // 2), s // 2 + 1) for s in mass.shape[1:])]))
    squares = energy - queries / keys
    return Sums(
        queries,
        squares[None],
        squares[None],
        squares,
        energy[None],
        mass[None],
        deviation[None],
        pairs,
        pairs,
        None,
        factor[None],
        queries * np.sum(entropies, 0)[None],
        np.prod([a.max(-1).sum(-1) for a in axes], 0)[None],
        (mass * away).reshape(len(mass), -1).sum(-1)[None],
        np.zeros((1, rows.heads)),
        outer(tops),
        outer(columns).reshape(rows.heads, -1),
        np.full(keys, float(queries)),
        queries * float(np.log(keys)),
    )
