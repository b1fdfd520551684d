"""The convolution nearest to the linear map of a layer, and the difference between the two."""

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
import torch

from conv2attn.networks.reading import Windows
from conv2attn.networks.reading.head_matrices import HeadMatrices
from conv2attn.span.arrays import CHUNK
from conv2attn.span.attention_rows import Array, AttentionRows
from conv2attn.span.equations import portions, shift_targets
from conv2attn.span.graded_facts.facts import ConvolutionFact
from conv2attn.span.graded_facts.measures import (
    KERNELS,
    Estimate,
    crossed,
    error_of,
    estimated,
    explained_of_uniform,
    mean_of,
    number,
)
from conv2attn.span.graded_facts.sums import Sums, coordinates, kernel, list_of_pieces
from conv2attn.span.least_squares import NEGLIGIBLE, triangular
from conv2attn.theory.basis import Offset

DENSE = 2**29
"""If attention has more entries than this and its rows are outer products over the axes, the difference between a layer
and its nearest convolution is not computed."""


def root_of(columns: Array) -> Array:
    """R of the QR of columns, computed a chunk of rows at a time."""
    starts = range(0, len(columns), CHUNK)
    parts = (columns[start : start + CHUNK] for start in starts)
    return reduce(lambda factor, part: triangular(np.concatenate([factor, part])), parts, columns[:0])


def share_explained(sums: Sums, root: Array, size: int) -> Estimate:
    """The share of a layer's map that the nearest convolution explains; `root` is R of the QR of the head matrices."""
    # A layer is L = sum_h A_h M_h^T. Its matrices are M_h = Q R_h, where Q has orthonormal columns and keeps norms. So
    # a combination of the M_h has the norm of the same combination of the R_h. This is accurate even if heads cancel,
    # since no large squares are subtracted.
    mass, count = sums.at(kernel(size, 1, sums.pairs.ndim))
    turned = root @ mass * np.divide(1.0, np.sqrt(count), out=np.zeros_like(count), where=count > 0)
    same_image, every = (turned**2).sum((1, 2)), turned.sum(0)
    along, total = (turned * every).sum((1, 2)), (every**2).sum()
    # |L|^2 = |R_A R_M^T|^2 with the triangular factors of the attention and of the matrices. `scales` is the sum of
    # |A_h M_h^T|^2 over heads. If |L|^2 is below the rounding of this sum, the layer counts as 0, and its share as 1.
    wholes = ((sums.factor @ root.T) ** 2).sum((1, 2))
    scales = ((sums.factor**2).sum(1) * (root**2).sum(0)).sum(1)

    def without(left_out: int | None) -> Array:
        part = crossed(same_image, along, total, left_out) if sums.images > 1 else same_image[0]
        whole, scale = mean_of(wholes, left_out), mean_of(scales, left_out)
        return np.asarray(part / whole if whole > NEGLIGIBLE**2 * scale else 1.0)

    return without


def nearest_convolutions(
    rows: AttentionRows,
    parts: Sequence[Sums],
    matrices: Array,
    windows: Windows | None = None,
) -> tuple[ConvolutionFact, ...]:
    """The nearest convolution of every kernel size, with its difference from the layer."""
    # Shifts by different offsets share no entry of the map. The least-squares tap is therefore the mean over all
    # queries whose target is on the grid, and does not depend on the other taps of the kernel.
    grid = rows.grid if windows is None else windows.grid
    fitting = [size for size in KERNELS if all(size <= 2 * side - 1 for side in grid.keys)]
    root = root_of(matrices.reshape(rows.heads, -1).T)
    total, packed = reduce(Sums.__add__, parts), HeadMatrices(torch.from_numpy(matrices)).packed()
    solutions, chances = [], list[float | None]()
    for size in fitting:
        offsets = kernel(size, 1, len(grid.keys))
        mass, count = total.at(offsets)
        weights = np.divide(mass.mean(0), count, out=np.zeros_like(mass[0]), where=count > 0)
        share = estimated(parts, partial(share_explained, root=root, size=size))
        solutions.append((size, offsets, weights, share))
        even = explained_of_uniform(total, offsets)
        chances.append(None if even is None else float(even.sum()))
    norm, errors = norms_left(rows, windows, [(offsets, weights) for _, offsets, weights, _ in solutions], root)
    return tuple(
        ConvolutionFact(size, float(share[0]), number(error_of(share)), error, norm, weights, packed, chance)
        for (size, _, weights, share), error, chance in zip(solutions, errors, chances, strict=True)
    )


def norms_left(
    rows: AttentionRows,
    windows: Windows | None,
    fields: Sequence[tuple[tuple[Offset, ...], Array]],
    root: Array,
) -> tuple[float | None, list[float | None]]:
    """`max_q sum_k |L_qk|` of the layer, and of its difference from each convolution, rounded up.

    L_qk is the matrix that maps token k to its part in output q, and |L_qk| is its Frobenius norm. The taps are
    combinations of the heads' matrices, so the triangular factor `root` of these gives all norms. All results are None
    if the rows are outer products over the axes with more than `DENSE` entries, and not one-hot.
    """
    largest, left = 0.0, [0.0] * len(fields)
    if rows.hot is not None and windows is None:
        pieces = hot_pieces(rows, fields)
    elif rows.axes is not None and rows.heads * rows.grid.shape[0] * rows.width > DENSE:
        return None, [None] * len(fields)
    else:
        pieces = read_pieces(rows, windows, fields)
    for block, placed in pieces:
        turned = np.einsum("gh,hqk->gqk", root, block)
        # |L_qk| is the norm of R times the heads' weights at (q, k), which are a few numbers per pair.
        lengths = np.sqrt(np.einsum("gqk,gqk->qk", turned, turned))
        largest = float(lengths.sum(1).max(initial=largest))
        for at, ((_, weights), (places, beyond)) in enumerate(zip(fields, placed, strict=True)):
            # A tap changes one key per query; the lengths at all other keys stay.
            rest, outside = lengths.copy(), np.zeros(len(lengths))
            taps = root @ weights
            for tap, place in enumerate(places):
                here = np.flatnonzero(place >= 0)
                moved = turned[:, here, place[here]] - taps[:, tap, None]
                rest[here, place[here]] = np.sqrt((moved**2).sum(0))
                # If the key of a tap is outside the window, the layer is 0 there, so the difference is the whole tap.
                outside += beyond[tap] * np.sqrt((taps[:, tap] ** 2).sum())
            left[at] = float((rest.sum(1) + outside).max(initial=left[at]))
    # If heads cancel, the rounding error of R is relative to the summands and not to their sum, so it is added.
    rounding, cancelled = 1 + 1e-10, NEGLIGIBLE * float(np.linalg.norm(root, axis=0).sum())
    return largest * rounding + cancelled, [error * rounding + cancelled for error in left]


def read_pieces(rows: AttentionRows, windows: Windows | None, fields: Sequence[tuple[tuple[Offset, ...], Any]]) -> Any:
    """Attention in pieces (heads, queries, keys), each with the places of the taps of every convolution.

    A place is the index of the tap's key among the keys of the piece, or -1. With the places comes an array that is 1
    if the tap's key is on the grid but not among these keys, because it is in another window. The padding of windows is
    left out.
    """
    grid = rows.grid if windows is None else windows.grid
    for queries, keys, images in list_of_pieces(rows, windows):
        real, pixels = queries >= 0, keys >= 0
        readers = queries[real]
        index = np.full(grid.shape[1], -1)
        index[keys[pixels]] = np.arange(pixels.sum())
        sites, placed = np.stack(coordinates(grid, readers), -1), []
        for offsets, _ in fields:
            at = sites[None] + np.array(offsets)[:, None]
            inside = ((at >= 0) & (at < np.array(grid.keys))).all(-1)
            flat = np.ravel_multi_index(tuple(np.moveaxis(np.where(inside[..., None], at, 0), -1, 0)), grid.keys)
            place = np.where(inside, index[flat], -1)
            placed.append((place, (inside & (place < 0)).astype(float)))
        for image in images:
            block = rows.read(image, queries if windows is None else np.arange(len(queries)))
            yield block[:, real][..., pixels] if windows is not None else block, placed


def hot_pieces(rows: AttentionRows, fields: Sequence[tuple[tuple[Offset, ...], Any]]) -> Any:
    """One-hot attention in the form of `read_pieces`, with every pattern of read and tapped keys once."""
    # Queries with the same pattern have the same lengths, so the maximum over patterns is the maximum over queries.
    # Keys that no head reads and no tap names have length 0.
    together = tuple(dict.fromkeys(offset for offsets, _ in fields for offset in offsets))
    targets = shift_targets(rows.grid, together)
    for portion in portions(rows, targets, np.arange(rows.images * rows.grid.shape[0])):
        placed = []
        for offsets, _ in fields:
            places = portion.places[[together.index(offset) for offset in offsets]]
            placed.append((places, np.zeros(places.shape)))
        yield portion.attention, placed
