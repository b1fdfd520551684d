"""Attention rows, read a few queries at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np
from numpy.typing import NDArray

from conv2attn.span.grids import Grid

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
Piece = tuple[int, slice, Array]


@final
@dataclass(frozen=True, eq=False)
class AttentionRows:
    """The attention of one layer, (heads, images * queries, keys + extra), read a few queries at a time.

    Args:
        name: of the layer.
        heads, images, grid: its shape; images that share one set of weights are stacked.
        roundoff: unit roundoff of the dtype that the attention came in.
        ulps: entrywise uncertainty in units of `roundoff`; 0 where the numbers are the operator itself.
        read: the rows of some queries of an image, (heads, queries, keys) in float64.
        step: how many queries of an image are read at once.
        known: the attention is that of positions alone, so that one image says all.
        one_hot: every row is bitwise one-hot.
        hot: (images, heads, queries), the keys that one-hot rows read, where they are known.
        axes: (heads, queries, keys) of each axis, where a row is their outer product.
        rational: the ideal operator's row of (head, image * queries + query), where it is rational.
        sampled: attention depends on the input, and these images are samples.
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
    read: Callable[[int, Whole], Array]
    step: int
    known: bool = False
    one_hot: bool = False
    rational: Callable[[int, int], list[Fraction]] | None = None
    sampled: bool = False
    d_head: int | None = None
    notes: tuple[str, ...] = ()
    hot: Whole | None = None
    axes: tuple[Array, ...] | None = None
    extra: int = 0

    @property
    def width(self) -> int:
        """Number of keys, those that are no pixels included."""
        return self.grid.shape[1] + self.extra

    @property
    def exact(self) -> bool:
        """Whether the rational rows are the operator itself, declared so, and not what floats are meant to be."""
        return self.rational is not None and self.ulps == 0

    def pieces(self) -> Iterator[Piece]:
        """All rows in chunks: (image, queries, attention)."""
        for image in range(self.images):
            for start in range(0, self.grid.shape[0], self.step):
                rows = slice(start, min(start + self.step, self.grid.shape[0]))
                yield image, rows, self.read(image, np.arange(rows.start, rows.stop))


def selected(attention: AttentionRows, chosen: NDArray[np.bool_]) -> Iterator[tuple[int, Whole, Array]]:
    """The rows of the chosen queries in chunks: (image, queries, attention (heads, queries, keys))."""
    wanted = np.flatnonzero(chosen)
    for image in range(attention.images):
        for start in range(0, len(wanted), attention.step):
            queries = wanted[start : start + attention.step]
            yield image, queries, attention.read(image, queries)
