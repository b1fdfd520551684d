"""Attention rows, read a few queries at a time; how well they are known, and when a residual counts as none.

The numbers of `check_span` that had to be chosen stand here, each with its reason; a report prints those that it used.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np
from numpy.typing import NDArray

from conv2attn.report.result import Part
from conv2attn.span.grids import Grid

Array = NDArray[np.float64]
Whole = NDArray[np.int64]

ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Unit roundoff of the dtypes that attention comes in."""
ULPS = 4
"""Largest distance of an entry of attention in floats from its ideal value, in units of roundoff.

An assumption, since only whoever computed it knows: the softmax of the scores as they were, its exponential counted as
2 and the sum and the division as 1 each. What the scores themselves had lost is not counted. Attention that is declared
exact has none."""
LARGEST_PHI = {0.0: 1e6, 2.0**-53: 1e6, 2.0**-24: 1e3, 2.0**-11: 10.0, 2.0**-8: 10.0}
"""By roundoff: what four ulps of attention let through, times this, stays far from 1."""
MOST_ALLOWED = 0.5
"""A Phi so large that rounding lets more than this through does not count: no heads at all leave 1."""
MOST_PHI = 1e100
"""The largest that can be asked for, and 1 over the smallest: float64 holds the squares of both times all that is
multiplied with them."""


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
        by_position: the attention is that of positions alone, so that one image says all.
        one_hot: every row is bitwise one-hot.
        hot: (images, heads, queries), the keys that one-hot rows read, where they are known.
        axes: (heads, queries, keys) of each axis, where a row is their outer product.
        rational: the ideal operator's row of (head, image * queries + query), where it is rational.
        sampled: attention depends on the input, and these images are samples.
        d_head: width of the heads, where known.
        notes: what was done to the attention before.
        centers: (images, heads, queries, axes), where content moves the centres of quadratic heads.
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
    by_position: bool
    one_hot: bool = False
    rational: Callable[[int, int], list[Fraction]] | None = None
    sampled: bool = False
    d_head: int | None = None
    notes: tuple[str, ...] = ()
    hot: Whole | None = None
    axes: tuple[Array, ...] | None = None
    centers: Array | None = None
    extra: int = 0

    @property
    def width(self) -> int:
        """Number of keys, those that are no pixels included."""
        return self.grid.shape[1] + self.extra

    @property
    def exact(self) -> bool:
        """Whether the rational rows are the operator itself, declared so, and not what floats are meant to be."""
        return self.rational is not None and self.ulps == 0

    def pieces(self, queries: Whole) -> Iterator[tuple[int, Whole, Array]]:
        """Rows of some queries in chunks: (image, queries, attention (heads, queries, keys))."""
        for image in range(self.images):
            for start in range(0, len(queries), self.step):
                chunk = queries[start : start + self.step]
                yield image, chunk, self.read(image, chunk)


class Limits(Part, frozen=True):
    """A residual of at most `eps + per_norm |phi|_1` counts as none; `|phi|_1`, the sum of the absolute values of a row
    of Phi, is at most `max_phi`."""

    eps: float
    max_phi: float
    per_norm: float = 0.0

    def allowed(self, norm: float) -> float:
        """The residual that counts as none for a mixing of this norm."""
        return self.eps + self.per_norm * norm


def limits_for(attention: AttentionRows, eps: float | None, max_phi: float | None) -> Limits:
    """The limits given; by default the norm of the dtype, and what the entries' uncertainty c u lets through.

    Rows sum to 1, so that a relative change of every entry by c u moves `phi A_q` by at most `c u |phi|_1`, whatever
    the number of keys, and `e_q - phi A_q` is a sum of heads + 1 products. Exact and one-hot attention have no c u.
    """
    norm = LARGEST_PHI[attention.roundoff] if max_phi is None else float(max_phi)
    if eps is not None:
        return Limits(float(eps), norm)
    uncertainty = attention.ulps * attention.roundoff
    share = uncertainty + 2 * (attention.heads + 4) * 2.0**-53 if uncertainty else 0.0
    largest = (MOST_ALLOWED - share) / share if share else norm
    return Limits(share, min(norm, largest), share)
