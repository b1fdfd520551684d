"""Shares of heads and of layers estimated without bias over images, each with a standard error.

A square of a mean over n images is estimated by the products of different images, `sum_{i != j} <x_i, x_j> / n(n - 1)`,
whose expectation is the square of the expectation. Errors are those of the jackknife: everything is estimated once more
without each image in turn, or of two images without each block of queries. An estimate has a leading axis for these
replicates, the first of them with everything.

Source of the estimator: Hoeffding 1948 (U-statistics); of the errors: Efron and Stein 1981 (the jackknife).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, final

import numpy as np

from conv2attn.basis import Offset
from conv2attn.models.tokens import Windows
from conv2attn.span.patterns import portions
from conv2attn.span.rows import Array, AttentionRows
from conv2attn.span.sums import Sums, coordinates, kernel, list_of_pieces
from conv2attn.span.targets import shifts

KERNELS = (1, 3, 5, 7)
DILATIONS = (1, 2, 3)
NEGLIGIBLE = 64 * np.finfo(np.float64).eps
"""Singular values of the heads below this share of the largest are rounding."""
DENSE = 2**29
"""Entries of attention beyond which nothing is said of what a convolution leaves of heads known axis by axis."""
LEVEL = 1e-12
"""Energy about the mean below this share of the whole is rounding: such a head attends evenly."""


def estimated(parts: Sequence[Sums], statistic: Callable[[Sums, int | None], Array]) -> Array:
    """A statistic of a layer with its replicates in front: (1 + replicates, ...); one image has none.

    `statistic(sums, left_out)` gives it without an image, or for None with all.
    """
    whole = reduce(Sums.__add__, parts)
    found = [statistic(whole, None)]
    if len(parts) > 1:
        rest = (reduce(Sums.__add__, [*parts[:at], *parts[at + 1 :]]) for at in range(len(parts)))
        found += [statistic(each, None) for each in rest]
    elif whole.images > 2:
        found += [statistic(whole, image) for image in range(whole.images)]
    return np.array(found)


def error_of(replicates: Array) -> Array | None:
    """The standard error of an estimate from its replicates; None where there are none.

    Of few replicates it is enlarged to what Student's distribution asks for, so that three errors cover 99 of 100.
    """
    count = len(replicates) - 1
    if count < 2:
        return None
    from scipy.special import stdtrit

    without = replicates[1:]
    spread = (count - 1) / count * ((without - without.mean(0)) ** 2).sum(0)
    return np.asarray(np.sqrt(spread) * max(1.0, float(stdtrit(count - 1, 0.995)) / 3))


def crossed(own: Array, along: Array, total: Array, left_out: int | None) -> Array:
    """The mean of `<x_i, x_j>` over pairs of different images, from `|x_i|^2`, `<x_i, sum x>` and `|sum x|^2`."""
    n = len(own)
    if left_out is None:
        return np.asarray((total - own.sum(0)) / (n * (n - 1)))
    rest = total - 2 * along[left_out] + 2 * own[left_out] - own.sum(0)
    return np.asarray(rest / ((n - 1) * (n - 2)))


def mean_of(values: Array, left_out: int | None) -> Array:
    """The mean over images (axis 0), without one."""
    return np.asarray((values if left_out is None else np.delete(values, left_out, 0)).mean(0))


def shares(sums: Sums, left_out: int | None, known: bool) -> Array:
    """(3, heads): the shares of relative position, of other position, and of content; NaN where they cannot be told.

    Of one image whose attention may depend on it, only the share of relative position is told: by products of different
    queries that have one displacement.
    """
    axes = tuple(range(1, sums.pairs.ndim + 1))
    whole = mean_of(sums.squares, left_out)
    by_offset = np.divide(sums.deviation**2, sums.pairs, out=np.zeros_like(sums.deviation), where=sums.pairs > 0)
    own = by_offset.sum(tuple(a + 1 for a in axes))
    if sums.images > 1:
        every = sums.deviation.sum(0)
        against = np.divide(every, sums.pairs, out=np.zeros_like(every), where=sums.pairs > 0)
        along = (sums.deviation * against).sum(tuple(a + 1 for a in axes))
        position = crossed(sums.squares, sums.along, sums.total, left_out)
        relative = crossed(own, along, (every * against).sum(axes), left_out)
    elif known:
        position, relative = sums.squares[0], own[0]
    else:
        assert sums.scatter is not None
        several = sums.pairs > 1
        parts = np.divide(sums.deviation[0] ** 2 - sums.scatter, sums.pairs - 1, where=several, out=0 * sums.scatter)
        position, relative = np.full_like(whole, np.nan), parts.sum(axes)
    even = whole <= LEVEL * mean_of(sums.energy, left_out)
    found = np.stack([relative, position - relative, whole - position]) / np.where(even, 1.0, whole)
    found = np.where(np.abs(found) < LEVEL, 0.0, found)
    return np.where(even, np.nan, found)


def spanned(sums: Sums, left_out: int | None, kernels: Sequence[tuple[Offset, ...]]) -> Array:
    """R^2 of the heads' span for each offset of some kernels: 1 less a shift's squared distance, over its square.

    It comes from the triangular factor of the heads, so that heads that are nearly dependent count as what they span.
    """
    kept = [image for image in range(sums.images) if image != left_out]
    factor = np.linalg.qr(np.concatenate(sums.factor[kept]), mode="r") / np.sqrt(len(kept))
    _, singular, right = np.linalg.svd(factor, full_matrices=False)
    real = singular > NEGLIGIBLE * max(singular.max(initial=0.0), 1e-300)
    directions = right[real] / singular[real, None]
    mass, count = sums.at(tuple(offset for each in kernels for offset in each))
    reached = np.einsum("dh,nho->ndo", directions, mass[kept])
    squares = (reached.sum(0) ** 2).sum(0)
    if len(kept) > 1:
        squares = (squares - (reached**2).sum((0, 1))) / (len(kept) * (len(kept) - 1))
    return np.asarray(np.divide(squares, count, out=np.zeros_like(squares), where=count > 0))


@final
@dataclass(frozen=True, eq=False)
class NearestConvolution:
    """The zero-padded convolution nearest to the map `x -> sum_h A_h x M_h^T` of a layer, over all queries and images.

    `taps` (offsets, d_out, d_in) minimise `sum |L_q - C_q|^2`; `share` is 1 less that over `sum |L_q|^2`, estimated
    without bias, and `share_error` its standard error. `error` is `max_q sum_k |L_qk - C_qk|`, with the Frobenius norm
    of a key's matrix, and `norm` the same of the layer: where no token is longer than r, an output of the layer is no
    longer than `norm r`, and that of the convolution no farther from it than `error r`.
    """

    size: int
    offsets: tuple[Offset, ...]
    taps: Array
    share: float
    share_error: float | None
    error: float | None
    norm: float | None


def explained(sums: Sums, left_out: int | None, products: Array, size: int) -> Array:
    """The share of a layer's map that the nearest convolution explains; `products` are those of the heads' matrices."""
    mass, count = sums.at(kernel(size, 1, sums.pairs.ndim))
    weights = np.divide(1.0, count, out=np.zeros_like(count), where=count > 0)
    turned = np.einsum("hg,ngo->nho", products, mass) * weights
    own, every = (mass * turned).sum((1, 2)), turned.sum(0)
    part = own[0]
    if sums.images > 1:
        part = crossed(own, (mass * every).sum((1, 2)), (mass.sum(0) * every).sum(), left_out)
    gram = mean_of(np.einsum("nhi,nhj->nij", sums.factor, sums.factor), left_out)
    whole = float((gram * products).sum())
    return np.asarray(part / whole if whole > 0 else 1.0)


def nearest_convolutions(
    rows: AttentionRows,
    parts: Sequence[Sums],
    matrices: Array,
    windows: Windows | None = None,
    sizes: Sequence[int] = KERNELS,
) -> tuple[NearestConvolution, ...]:
    """The nearest convolution of each size, with what it leaves, in one more pass."""
    grid = rows.grid if windows is None else windows.grid
    fitting = [size for size in sizes if all(size <= 2 * side - 1 for side in grid.keys)]
    products = np.einsum("hoi,goi->hg", matrices, matrices)
    whole, found = reduce(Sums.__add__, parts), []
    for size in fitting:
        offsets = kernel(size, 1, len(grid.keys))
        mass, count = whole.at(offsets)
        weights = np.divide(mass.mean(0), count, out=np.zeros_like(mass[0]), where=count > 0)
        share = estimated(parts, partial(explained, products=products, size=size))
        found.append((size, offsets, weights, share))
    norm, errors = norms_left(rows, windows, [(offsets, weights) for _, offsets, weights, _ in found], products)
    return tuple(
        NearestConvolution(
            size,
            offsets,
            np.einsum("ht,hoi->toi", weights, matrices),
            float(share[0]),
            number(error_of(share)),
            error,
            norm,
        )
        for (size, offsets, weights, share), error in zip(found, errors, strict=True)
    )


def number(value: Array | None) -> float | None:
    """A single number as Python's, or None for none."""
    return None if value is None or not np.isfinite(value) else float(value)


def norms_left(
    rows: AttentionRows,
    windows: Windows | None,
    fields: Sequence[tuple[tuple[Offset, ...], Array]],
    products: Array,
) -> tuple[float | None, list[float | None]]:
    """`max_q sum_k |L_qk|` of the layer and of what each convolution leaves of it, rounded up.

    The taps are combinations of the heads' matrices, whose products give every norm. Nothing is said of heads that are
    only known axis by axis, and are not one-hot.
    """
    values, directions = np.linalg.eigh(products)
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * directions.T
    largest, left = 0.0, [0.0] * len(fields)
    if rows.hot is not None and windows is None:
        pieces = hot_pieces(rows, fields)
    elif rows.axes is not None and rows.heads * rows.grid.shape[0] * rows.width > DENSE:
        return None, [None] * len(fields)
    else:
        pieces = read_pieces(rows, windows, fields)
    for block, placed in pieces:
        turned = np.einsum("gh,hqk->gqk", root, block)
        lengths = np.sqrt(np.einsum("gqk,gqk->qk", turned, turned))
        rowwise = lengths.sum(-1)
        largest = max(largest, float(rowwise.max(initial=0.0)))
        for at, ((_, weights), (places, beyond)) in enumerate(zip(fields, placed, strict=True)):
            rest = rowwise.copy()
            taps = root @ weights
            for tap, place in enumerate(places):
                here = np.flatnonzero(place >= 0)
                moved = turned[:, here, place[here]] - taps[:, tap, None]
                rest[here] += np.sqrt((moved**2).sum(0)) - lengths[here, place[here]]
                rest += beyond[tap] * np.sqrt((taps[:, tap] ** 2).sum())
            left[at] = max(left[at], float(rest.max(initial=0.0)))
    rounding = 1 + 1e-10
    return largest * rounding, [each * rounding for each in left]


Placed = tuple[Array, Array]


def read_pieces(rows: AttentionRows, windows: Windows | None, fields: Sequence[tuple[tuple[Offset, ...], Any]]) -> Any:
    """Attention in pieces, (heads, queries, keys); with, for each convolution, the keys of its taps among these keys,
    -1 for none, and whether a tap is on the grid beyond them."""
    grid = rows.grid if windows is None else windows.grid
    for queries, keys, images in list_of_pieces(rows, windows):
        real = queries >= 0
        asked = queries[real]
        index = np.full(grid.shape[1], -1)
        index[keys[keys >= 0]] = np.flatnonzero(keys >= 0)
        sites, placed = np.stack(coordinates(grid, asked), -1), []
        for offsets, _ in fields:
            at = sites[None] + np.array(offsets)[:, None]
            inside = ((at >= 0) & (at < np.array(grid.keys))).all(-1)
            flat = np.ravel_multi_index(tuple(np.moveaxis(np.where(inside[..., None], at, 0), -1, 0)), grid.keys)
            place = np.where(inside, index[flat], -1)
            placed.append((place, (inside & (place < 0)).astype(float)))
        for image in images:
            block = rows.read(image, queries if windows is None else np.arange(len(queries)))
            yield block[:, real] if windows is not None else block, placed


def hot_pieces(rows: AttentionRows, fields: Sequence[tuple[tuple[Offset, ...], Any]]) -> Any:
    """The same of one-hot rows, each pattern of keys that are read or tapped once."""
    together = tuple(dict.fromkeys(offset for offsets, _ in fields for offset in offsets))
    targets = shifts(rows.grid, together)
    for portion in portions(rows, targets, np.ones(rows.grid.shape[0], bool)):
        placed = []
        for offsets, _ in fields:
            places = portion.places[[together.index(offset) for offset in offsets]]
            placed.append((places, np.zeros(places.shape)))
        yield portion.attention, placed
