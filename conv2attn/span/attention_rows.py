"""Attention rows, read a few queries at a time; their uncertainty, and the largest residual that counts as zero.

The constants of `check_span` that had to be chosen are defined here, with their reasons. A report prints those it used.
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
"""Unit roundoff of the dtypes that attention may have, the widest first."""
ULPS = 4
"""Largest relative error of an entry of attention in floats, in units of roundoff.

This is an assumption, since an array does not say how it was computed: of a softmax, the exponential counts as 2 units,
the sum and the division as 1 unit each. Errors of the scores are not counted. Attention that is declared exact has no
error."""
LARGEST_PHI = {0.0: 1e6, 2.0**-53: 1e6, 2.0**-24: 1e3, 2.0**-11: 10.0, 2.0**-8: 10.0}
"""The default `max_phi` by roundoff, such that four ulps of attention times this norm are far below a residual of 1."""
MOST_ALLOWED = 0.5
"""Norms of Phi at which rounding explains a residual above this are not allowed; without heads the residual is 1."""
MOST_PHI = 1e100
"""The largest `max_phi`; its inverse is the smallest one. The range of float64 holds the squares of both, with room for
the other factors of a bound."""


@final
@dataclass(frozen=True, eq=False)
class AttentionRows:
    """The attention of one layer, (heads, images * queries, keys + extra), read a few queries at a time.

    Args:
        name: name of the layer.
        heads, images, grid: shape of the attention.
        roundoff: unit roundoff of the dtype in which the attention was computed.
        ulps: largest relative error of an entry in units of `roundoff`; 0 if the attention is exact.
        read: reads the rows of some queries of an image, (heads, queries, keys) in float64.
        step: how many queries of an image are read at once.
        by_position: whether the attention depends on positions alone, so that one image determines it.
        one_hot: whether every row is bitwise one-hot.
        hot: the keys that one-hot rows read, (images, heads, queries); None if they were not computed.
        axes: one array (heads, queries, keys) per axis, if a row is the outer product of its parts.
        rational: reads the exact row of (head, image * queries + query), if it is rational.
        sampled: whether attention depends on the input, so that these images are samples.
        d_head: width of the heads; None if it is unknown.
        notes: how the attention was read, for the report.
        centers: the centres of quadratic heads, if content moves them, (images, heads, queries, axes).
        extra: number of keys that are not pixels (class tokens, registers). They are the last columns, and targets are
            0 there.
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
        """Whether the array was declared exact, so that its rational rows have no uncertainty."""
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
    """The limits that the caller passed; by default the norm for the dtype, and the residual that rounding explains.

    Let u be the roundoff and c the `ulps` of the attention. Rows sum to 1, so a relative change of every entry by c u
    moves `phi A_q` by at most `c u |phi|_1`, for any number of keys. The computation of `e_q - phi A_q`, a sum of
    heads + 1 products, rounds too. Exact and one-hot attention have c = 0.
    """
    norm = LARGEST_PHI[attention.roundoff] if max_phi is None else float(max_phi)
    if eps is not None:
        return Limits(float(eps), norm)
    # `eps` is equal to `per_norm`, since the target, with |e_q|_1 = 1, is a term of the same rounded sum.
    uncertainty = attention.ulps * attention.roundoff
    share = uncertainty + 2 * (attention.heads + 4) * 2.0**-53 if uncertainty else 0.0
    # The largest norm with share (1 + norm) <= MOST_ALLOWED. Beyond it, rounding alone could explain half of a shift.
    largest = (MOST_ALLOWED - share) / share if share else norm
    return Limits(share, min(norm, largest), share)
