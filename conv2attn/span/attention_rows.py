"""Attention rows, read a few queries at a time; their uncertainty, and the largest residual that counts as zero.

The chosen constants of `check_span` are defined here, with their reasons; a report prints those that it used.
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
"""Unit roundoff of the dtypes that attention comes in, the widest first."""
ULPS = 4
"""Largest distance of an entry of attention in floats from its ideal value, in units of roundoff.

An assumption, since an array does not say how it was computed: a softmax of the given scores, whose exponential counts
as 2, the sum and the division as 1 each. Errors of the scores themselves are not counted. Attention that is declared
exact has no uncertainty."""
LARGEST_PHI = {0.0: 1e6, 2.0**-53: 1e6, 2.0**-24: 1e3, 2.0**-11: 10.0, 2.0**-8: 10.0}
"""The default `max_phi` by roundoff: four ulps of attention times this norm stay far below a residual of 1."""
MOST_ALLOWED = 0.5
"""A norm of Phi is rejected if rounding alone explains a larger residual; without heads the residual is 1.
"""
MOST_PHI = 1e100
"""The largest `max_phi`; its inverse is the smallest. Their squares, times any number of a bound, fit the range of
float64."""


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
        by_position: the attention depends on positions alone, so that one image determines it.
        one_hot: every row is bitwise one-hot.
        hot: (images, heads, queries), the keys that one-hot rows read; None where they were not computed.
        axes: (heads, queries, keys) of each axis, where a row is their outer product.
        rational: the ideal operator's row of (head, image * queries + query), where it is rational.
        sampled: attention depends on the input, and these images are samples.
        d_head: width of the heads; None where it is unknown.
        notes: how the attention was read, for the report.
        centers: (images, heads, queries, axes), where content moves the centres of quadratic heads.
        extra: number of keys that are not pixels (class tokens, registers): the last columns, where targets are 0.
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
        """Number of keys, including those that are not pixels."""
        return self.grid.shape[1] + self.extra

    @property
    def exact(self) -> bool:
        """Whether the array was declared exact: the rational rows are the operator itself."""
        return self.rational is not None and self.ulps == 0

    def pieces(self, queries: Whole) -> Iterator[tuple[int, Whole, Array]]:
        """Rows of some queries in chunks: (image, queries, attention (heads, queries, keys))."""
        for image in range(self.images):
            for start in range(0, len(queries), self.step):
                chunk = queries[start : start + self.step]
                yield image, chunk, self.read(image, chunk)


class Limits(Part, frozen=True):
    """A residual of at most `eps + per_norm |phi|_1` counts as zero, for rows phi of Phi with `|phi|_1 <= max_phi`."""

    eps: float
    max_phi: float
    per_norm: float = 0.0

    def allowed(self, norm: float) -> float:
        """The residual that counts as zero for a mixing of this norm."""
        return self.eps + self.per_norm * norm


def limits_for(attention: AttentionRows, eps: float | None, max_phi: float | None) -> Limits:
    """The limits passed; by default the norm for the dtype, and the residual that the entries' uncertainty c u
    explains.

    Rows sum to 1, so a relative change of every entry by c u moves `phi A_q` by at most `c u |phi|_1`, for any number
    of keys. The computation of `e_q - phi A_q`, a sum of heads + 1 products, rounds too. Exact and one-hot attention
    have c = 0.
    """
    norm = LARGEST_PHI[attention.roundoff] if max_phi is None else float(max_phi)
    if eps is not None:
        return Limits(float(eps), norm)
    # `eps` is the same share, since the target, with |e_q|_1 = 1, is a term of the same rounded sum.
    uncertainty = attention.ulps * attention.roundoff
    share = uncertainty + 2 * (attention.heads + 4) * 2.0**-53 if uncertainty else 0.0
    # share (1 + norm) <= MOST_ALLOWED, solved for the norm: beyond it rounding alone would pass for half of a shift.
    largest = (MOST_ALLOWED - share) / share if share else norm
    return Limits(share, min(norm, largest), share)
