"""Graded facts of heads, in one pass over the attention: where they look, what explains it, what their span reaches.

With `m_h(d) = sum_q A_h[q, q + d]` over all images, `n(d)` the number of queries that have displacement d on the grid,
and the heads' products `G[h, g] = <A_h, A_g>`, everything here is arithmetic on m, n and G.
"""

from dataclasses import dataclass
from itertools import product
from typing import final

import numpy as np
from numpy.typing import NDArray

from conv2attn.basis import Offset
from conv2attn.span.conditions.problem import Array, AttentionRows
from conv2attn.span.sources.grids import Grid

KERNELS = (1, 3, 5, 7)
DILATIONS = (1, 2, 3)
NEGLIGIBLE = 1e-10
"""Directions of the heads' products below this share of the largest are rounding."""


@final
@dataclass(frozen=True, eq=False)
class Masses:
    """Sums of one pass. `mass` is m and `having` n, with displacement 0 in the middle; `products` is G.

    By head: `energy` the squares of attention to pixels about their mean, `content` what of it varies over the images,
    `entropy` and `largest` the means over queries of the entropy and of the largest entry, `distance` of the distance
    in pixels, `extra` of the attention to keys that are no pixels, `sink` the most that one key has of all queries.
    """

    heads: int
    rows: int
    mass: Array
    having: Array
    products: Array
    energy: Array
    content: Array
    relative: Array
    entropy: Array
    largest: Array
    distance: Array
    extra: Array
    sink: Array

    @property
    def shares(self) -> Array:
        """(3, heads): what displacement explains, what else positions explain, what content does; they sum to 1."""
        whole = np.where(self.energy > 0, self.energy, 1.0)
        absolute = np.maximum(self.energy - self.content - self.relative, 0.0)
        found = np.stack([self.relative, absolute, self.content]) / whole
        return np.where(self.energy > 0, found, np.array([1.0, 0.0, 0.0])[:, None])

    def at(self, offset: Offset) -> tuple[Array, float]:
        """m and n of an offset; nothing beyond the grid."""
        place = tuple(o + side // 2 for o, side in zip(offset, self.having.shape, strict=True))
        if any(not 0 <= at < side for at, side in zip(place, self.having.shape, strict=True)):
            return np.zeros(self.heads), 0.0
        return self.mass[(slice(None), *place)], float(self.having[place])

    def inverse(self) -> Array:
        """The pseudo-inverse of G."""
        return np.asarray(np.linalg.pinv(self.products, rcond=NEGLIGIBLE, hermitian=True), dtype=np.float64)

    def spanned(self, offsets: tuple[Offset, ...]) -> Array:
        """R^2 of the span for each offset: 1 less the squared distance of the shift from it, over its square."""
        inverse, found = self.inverse(), []
        for offset in offsets:
            mass, count = self.at(offset)
            found.append(float(mass @ inverse @ mass) / count if count else 0.0)
        return np.minimum(np.array(found), 1.0)


def kernel(size: int, dilation: int, axes: int) -> tuple[Offset, ...]:
    """The offsets of an odd kernel."""
    along = [dilation * (t - size // 2) for t in range(size)]
    return tuple(product(along, repeat=axes))


def displacement_bins(grid: Grid, queries: NDArray[np.int64]) -> NDArray[np.int64]:
    """The flat index of `key - site` among the (2 side - 1) of each axis: (queries, pixels)."""
    sides = tuple(2 * side - 1 for side in grid.keys)
    flat = np.zeros((len(queries), 1), dtype=np.int64)
    at = np.unravel_index(queries, grid.queries)
    for axis, side in enumerate(sides):
        along = grid.displacement(axis).numpy()[at[axis]] + grid.keys[axis] - 1
        flat = (flat[:, :, None] * side + along[:, None, :]).reshape(len(queries), -1)
    return flat


def masses(attention: AttentionRows, shuffled: np.random.Generator | None = None) -> Masses:
    """The sums over all queries of all images; of rows whose keys are shuffled, if a generator is given."""
    grid, heads, pixels = attention.grid, attention.heads, attention.grid.shape[1]
    shape = tuple(2 * side - 1 for side in grid.keys)
    size, rows = int(np.prod(shape)), attention.images * grid.shape[0]
    away = np.stack(np.meshgrid(*(np.arange(s) - s // 2 for s in shape), indexing="ij"), -1).reshape(size, -1)
    lengths = np.sqrt((away**2).sum(-1))
    mass, having = np.zeros((heads, size)), np.zeros(size)
    means = np.zeros((heads, size))
    squares, within, total = np.zeros(heads), np.zeros(heads), np.zeros(heads)
    products, columns = np.zeros((heads, heads)), np.zeros((heads, attention.width))
    entropy, largest = np.zeros(heads), np.zeros(heads)
    several = [attention.pieces(image) for image in range(attention.images)] if attention.images > 1 else None
    for together in zip(*(several or [attention.pieces()]), strict=True):
        place: NDArray[np.int64] = displacement_bins(grid, np.arange(together[0][1].start, together[0][1].stop)).ravel()
        mean = np.zeros((heads, len(place)))
        for _, _, given in together:
            block = given if shuffled is None else shuffled.permuted(given, axis=-1)
            flat, kept = block.reshape(heads, -1), block[..., :pixels].reshape(heads, -1)
            products += flat @ flat.T
            columns += block.sum(1)
            squares += (kept**2).sum(-1)
            total += kept.sum(-1)
            logs = np.log(block, out=np.zeros_like(block), where=block > 0)
            entropy -= (block * logs).sum((1, 2))
            largest += block.max(-1).sum(-1)
            having += np.bincount(place, minlength=size)
            mean += kept / attention.images
        within += (mean**2).sum(-1)
        for head in range(heads):
            means[head] += np.bincount(place, mean[head], size)
    mass = means * attention.images
    level, count = total / (rows * pixels), rows * pixels
    energy = np.maximum(squares - count * level**2, 0.0)
    energy = np.where(energy > 1e-12 * squares, energy, 0.0)
    content = np.clip(squares - attention.images * within, 0.0, energy)
    by_offset = np.divide(mass**2, having, out=np.zeros_like(mass), where=having > 0).sum(-1)
    relative = np.clip(by_offset - count * level**2, 0.0, energy - content)
    return Masses(
        heads,
        rows,
        mass.reshape(heads, *shape),
        having.reshape(shape),
        products,
        energy,
        content,
        relative,
        entropy / rows,
        largest / rows,
        np.divide(mass @ lengths, mass.sum(-1), out=np.zeros(heads), where=mass.sum(-1) > 0),
        1 - mass.sum(-1) / rows if attention.extra else np.zeros(heads),
        columns.max(-1) / rows,
    )


@final
@dataclass(frozen=True, eq=False)
class NearestConvolution:
    """The zero-padded convolution nearest to the map `x -> sum_h A_h x M_h^T` of a layer, over all queries and images.

    `taps` (offsets, d_out, d_in) minimise `sum |L_q - C_q|^2`; `share` is 1 less that over `sum |L_q|^2`. With `|x|` at
    most r, output and convolution differ by at most `error r`: `error` is at least `max_q sum |L_q - C_q|` of a row.
    """

    size: int
    offsets: tuple[Offset, ...]
    taps: Array
    share: float
    error: float


def nearest(seen: Masses, matrices: Array, size: int, axes: int) -> tuple[tuple[Offset, ...], Array, float]:
    """The offsets, for each the weight of every head's matrix, and the share of the map that this explains."""
    offsets = kernel(size, 1, axes)
    along = np.einsum("hoi,goi->hg", matrices, matrices)
    whole = float((seen.products * along).sum())
    weights, explained = [], 0.0
    for offset in offsets:
        mass, count = seen.at(offset)
        weights.append(mass / count if count else np.zeros(seen.heads))
        explained += float(mass @ along @ mass) / count if count else 0.0
    return offsets, np.array(weights), explained / whole if whole else 1.0


def nearest_convolutions(
    attention: AttentionRows, seen: Masses, matrices: Array, sizes: tuple[int, ...] = KERNELS
) -> tuple[NearestConvolution, ...]:
    """The nearest convolution of each size, with its bound, in one more pass.

    `|L_q - C_q|` is at most `sum_h |A_h(q) - f_h|_1 |M_h|` in each output, where `f_h(d)` is what the tap takes of h.
    """
    grid, axes, pixels = attention.grid, len(attention.grid.keys), attention.grid.shape[1]
    fitting = [size for size in sizes if all(size <= 2 * side - 1 for side in grid.keys)]
    found = [(size, *nearest(seen, matrices, size, axes)) for size in fitting]
    shape = seen.having.shape
    fields = []
    for _, offsets, weights, _ in found:
        field = np.zeros((seen.heads, *shape))
        for offset, weight in zip(offsets, weights, strict=True):
            field[(slice(None), *(o + side // 2 for o, side in zip(offset, shape, strict=True)))] = weight
        fields.append(field.reshape(seen.heads, -1))
    rows = np.abs(matrices).sum(-1)
    worst = np.zeros(len(found))
    for _, queries, block in attention.pieces():
        bins = displacement_bins(grid, np.arange(queries.start, queries.stop))
        beside = block[..., pixels:].sum(-1)
        for place, field in enumerate(fields):
            left = np.abs(block[..., :pixels] - field[:, bins]).sum(-1) + beside
            worst[place] = max(worst[place], float((left.T @ rows).max()))
    rounding = 1 + 1e-12 * (pixels + seen.heads + matrices.shape[-1])
    return tuple(
        NearestConvolution(size, offsets, np.einsum("th,hoi->toi", weights, matrices), share, float(error * rounding))
        for (size, offsets, weights, share), error in zip(found, worst, strict=True)
    )
