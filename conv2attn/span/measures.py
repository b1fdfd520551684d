"""Graded facts of heads, in one pass over the attention: where they look, what explains it, what their span reaches.

With `m_h(d) = sum_q A_h[q, q + d]` over all images, `n(d)` the number of queries that have displacement d on the grid,
and the heads' products `G[h, g] = <A_h, A_g>`, everything here is arithmetic on m, n and G.
"""

from dataclasses import dataclass
from itertools import product
from typing import Any, final

import numpy as np

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
    `scatter` sums, by displacement, the variance of each query's row about its mean, a mean over the images.
    """

    heads: int
    rows: int
    images: int
    width: int
    mass: Array
    having: Array
    scatter: Array
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

    @property
    def relative_by_chance(self) -> Array:
        """(heads): the relative share to be expected of one image whose keys are shuffled in each row and head.

        `m(d)` is then a sum of n(d) independent entries, whose variance is that of the rows.
        """
        scatter = self.scatter.reshape(self.heads, -1)
        having, whole = self.having.reshape(-1) / self.images, scatter.sum(-1)
        met = np.divide(scatter, having, out=np.zeros_like(scatter), where=having > 0).sum(-1)
        return np.divide(met, whole, out=np.ones(self.heads), where=whole > 0)

    def at(self, offset: Offset) -> tuple[Array, float]:
        """m and n of an offset; nothing beyond the grid."""
        place = self.place(offset)
        if place is None:
            return np.zeros(self.heads), 0.0
        return self.mass[:, *place], float(self.having[place])

    def place(self, offset: Offset) -> tuple[Any, ...] | None:
        """Where an offset stands in `having`; None beyond the grid."""
        place = tuple(o + side // 2 for o, side in zip(offset, self.having.shape, strict=True))
        inside = all(0 <= at < side for at, side in zip(place, self.having.shape, strict=True))
        return place if inside else None

    def spanned(self, offsets: tuple[Offset, ...]) -> Array:
        """R^2 of the span for each offset: 1 less the squared distance of the shift from it, over its square."""
        inverse, found = pseudo_inverse(self.products), []
        for offset in offsets:
            mass, count = self.at(offset)
            found.append(float(mass @ inverse @ mass) / count if count else 0.0)
        return np.minimum(np.array(found), 1.0)

    @property
    def products_by_chance(self) -> Array:
        """G to be expected of one image with keys shuffled in each row and head: 1 / width a query for two heads."""
        products = np.full((self.heads, self.heads), self.rows / self.images / self.width)
        np.fill_diagonal(products, np.diag(self.products) / self.images)
        return products

    def met_by_chance(self, offset: Offset) -> Array:
        """`m m^T / n` of an offset, (heads, heads), to be expected of the same image."""
        place = self.place(offset)
        count = 0.0 if place is None else float(self.having[place]) / self.images
        if place is None or not count:
            return np.zeros((self.heads, self.heads))
        return np.asarray(count / self.width**2 + np.diag(self.scatter[:, *place] / count))

    def spanned_by_chance(self, offsets: tuple[Offset, ...]) -> Array:
        """R^2 of the span for each offset, to be expected of the same image."""
        inverse = pseudo_inverse(self.products_by_chance)
        return np.minimum([float((inverse * self.met_by_chance(offset)).sum()) for offset in offsets], 1.0)


def pseudo_inverse(products: Array) -> Array:
    """The pseudo-inverse of products of heads."""
    return np.asarray(np.linalg.pinv(products, rcond=NEGLIGIBLE, hermitian=True), dtype=np.float64)


def kernel(size: int, dilation: int, axes: int) -> tuple[Offset, ...]:
    """The offsets of an odd kernel."""
    along = [dilation * (t - size // 2) for t in range(size)]
    return tuple(product(along, repeat=axes))


def boxes(grid: Grid) -> list[tuple[slice, ...]]:
    """For each query the box of its keys among the displacements, which are (2 side - 1) along each axis."""
    sites = [grid.site(axis).tolist() for axis in range(len(grid.keys))]
    along = [[slice(side - 1 - at, 2 * side - 1 - at) for at in on] for side, on in zip(grid.keys, sites, strict=True)]
    return list(product(*along))


def masses(attention: AttentionRows) -> Masses:
    """The sums over all queries of all images."""
    grid, heads, images = attention.grid, attention.heads, attention.images
    pixels, width, rows = grid.shape[1], attention.width, images * grid.shape[0]
    shape, places = tuple(2 * side - 1 for side in grid.keys), boxes(grid)
    mass, scatter, having = np.zeros((heads, *shape)), np.zeros((heads, *shape)), np.zeros(shape)
    squares, within, total = np.zeros(heads), np.zeros(heads), np.zeros(heads)
    products, columns = np.zeros((heads, heads)), np.zeros((heads, width))
    entropy, largest = np.zeros(heads), np.zeros(heads)
    several = [attention.pieces(image) for image in range(images)] if images > 1 else [attention.pieces()]
    for together in zip(*several, strict=True):
        first = together[0][1].start
        mean, lengths = np.zeros((heads, len(together[0][2][0]), pixels)), np.zeros((heads, len(together[0][2][0])))
        for _, _, block in together:
            flat, kept = block.reshape(heads, -1), block[..., :pixels]
            products += flat @ flat.T
            columns += block.sum(1)
            lengths += np.einsum("hqk,hqk->hq", block, block) / images
            squares += np.einsum("hqk,hqk->h", kept, kept)
            total += kept.sum((1, 2))
            logs = np.log(np.maximum(block.astype(np.float32), np.finfo(np.float32).tiny))
            entropy -= np.einsum("hqk,hqk->h", block, logs)
            largest += block.max(-1).sum(-1)
            mean += kept / images
        within += np.einsum("hqk,hqk->h", mean, mean)
        spread = np.maximum(lengths / width - 1 / width**2, 0.0)
        for at in range(mean.shape[1]):
            box = places[first + at]
            mass[:, *box] += mean[:, at].reshape(heads, *grid.keys)
            scatter[:, *box] += spread[:, at].reshape(heads, *[1] * len(shape))
            having[box] += images
    mass *= images
    level, count = total / (rows * pixels), rows * pixels
    energy = np.maximum(squares - count * level**2, 0.0)
    energy = np.where(energy > 1e-12 * squares, energy, 0.0)
    content = np.clip(squares - images * within, 0.0, energy)
    axes = tuple(range(1, mass.ndim))
    by_offset = np.divide(mass**2, having, out=np.zeros_like(mass), where=having > 0).sum(axes)
    met = mass.sum(axes)
    away = np.sqrt(sum(np.square(along) for along in np.ogrid[tuple(slice(-(s // 2), s // 2 + 1) for s in shape)]))
    return Masses(
        heads,
        rows,
        images,
        width,
        mass,
        having,
        scatter,
        products,
        energy,
        content,
        np.clip(by_offset - count * level**2, 0.0, energy - content),
        entropy / rows,
        largest / rows,
        np.divide((mass * away).sum(axes), met, out=np.zeros(heads), where=met > 0),
        1 - met / rows if attention.extra else np.zeros(heads),
        columns.max(-1) / rows,
    )


@final
@dataclass(frozen=True, eq=False)
class NearestConvolution:
    """The zero-padded convolution nearest to the map `x -> sum_h A_h x M_h^T` of a layer, over all queries and images.

    `taps` (offsets, d_out, d_in) minimise `sum |L_q - C_q|^2`; `share` is 1 less that over `sum |L_q|^2`, and `chance`
    what is to be expected of it where keys are shuffled in each row and head. With `|x|` at most r, output and
    convolution differ by at most `error r`: `error` is at least `max_q sum |L_q - C_q|` of a row.
    """

    size: int
    offsets: tuple[Offset, ...]
    taps: Array
    share: float
    chance: float
    error: float


def nearest(seen: Masses, matrices: Array, size: int, axes: int) -> tuple[tuple[Offset, ...], Array, float, float]:
    """The offsets, for each the weight of every head's matrix, and the share of the map explained, and by chance."""
    offsets = kernel(size, 1, axes)
    along = np.einsum("hoi,goi->hg", matrices, matrices)
    weights, explained = [], 0.0
    for offset in offsets:
        mass, count = seen.at(offset)
        weights.append(mass / count if count else np.zeros(seen.heads))
        explained += float(mass @ along @ mass) / count if count else 0.0
    by_chance = sum(float((seen.met_by_chance(offset) * along).sum()) for offset in offsets)
    wholes = [float((products * along).sum()) for products in (seen.products, seen.products_by_chance)]
    shares = [part / whole if whole else 1.0 for part, whole in zip((explained, by_chance), wholes, strict=True)]
    return offsets, np.array(weights), shares[0], shares[1]


def nearest_convolutions(
    attention: AttentionRows, seen: Masses, matrices: Array, sizes: tuple[int, ...] = KERNELS
) -> tuple[NearestConvolution, ...]:
    """The nearest convolution of each size, with its bound, in one more pass.

    `|L_q - C_q|` is at most `sum_h |A_h(q) - f_h|_1 |M_h|` in each output, where `f_h(d)` is what the tap takes of h.
    """
    grid, axes, pixels = attention.grid, len(attention.grid.keys), attention.grid.shape[1]
    fitting = [size for size in sizes if all(size <= 2 * side - 1 for side in grid.keys)]
    found = [(size, *nearest(seen, matrices, size, axes)) for size in fitting]
    far = max(fitting, default=1) // 2
    fields = np.zeros((len(found), seen.heads, *[2 * far + 1] * axes))
    for field, (_, offsets, weights, *_) in zip(fields, found, strict=True):
        for offset, weight in zip(offsets, weights, strict=True):
            field[:, *(o + far for o in offset)] = weight
    rows, worst, places = np.abs(matrices).sum(-1), np.zeros(len(found)), boxes(grid)
    for _, queries, block in attention.pieces():
        for at, box in enumerate(places[queries]):
            sites = [side - 1 - along.start for side, along in zip(grid.keys, box, strict=True)]
            near = [slice(max(0, s - far), s + far + 1) for s in sites]
            taps = [slice(max(0, far - s), far + min(far + 1, n - s)) for s, n in zip(sites, grid.keys, strict=True)]
            rest = block[:, at].copy()
            reached = rest[:, :pixels].reshape(seen.heads, *grid.keys)[:, *near]
            tapped = np.abs(reached - fields[:, :, *taps]).reshape(*fields.shape[:2], -1).sum(-1)
            reached[...] = 0
            worst = np.maximum(worst, ((tapped + rest.sum(-1)) @ rows).max(-1, initial=0.0))
    rounding = 1 + 1e-12 * (pixels + seen.heads + matrices.shape[-1])
    return tuple(
        NearestConvolution(
            size, offsets, np.einsum("th,hoi->toi", weights, matrices), share, chance, float(error * rounding)
        )
        for (size, offsets, weights, share, chance), error in zip(found, worst, strict=True)
    )
