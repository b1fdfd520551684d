"""Generalised quadratic heads: softmax of a Gaussian with a full covariance (Cordonnier et al. 2020, App. E)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self, final

import torch
from torch import Tensor

from conv2attn.theory.basis.grid import AttentionGrid
from conv2attn.theory.basis.numbers import HeadNumbers, ScoreEllipse
from conv2attn.theory.basis.operator import moved_to
from conv2attn.theory.basis.operators.quadratic import as_centers
from conv2attn.theory.basis.operators.softmax import Positions, additive_scores

SINGULAR = 2.0**-40  # chosen: eigenvalues below this share of the largest may be rounding errors


@final
@dataclass(frozen=True, eq=False)
class GeneralisedSoftmax(Positions):
    """In head h, query q reads the softmax over all keys k of `-1/2 |root[h] (k - q - center[h])|^2`.

    The precision matrix `root^T root` is positive semi-definite for every root. The relative position is
    `r_delta = (delta, delta_i delta_j)`, with one product for each pair of axes.

    Args:
        center: in pixels, (heads, axes).
        root: Sigma^{-1/2} of each head, in inverse pixels, (heads, axes, axes).
    Source: Cordonnier et al. 2020, Eq. (19).
    """

    name: ClassVar[str] = "generalised"
    has_features: ClassVar[bool] = True
    is_stationary: ClassVar[bool] = True

    center: Tensor  # (heads, axes)
    root: Tensor  # (heads, axes, axes)

    @classmethod
    def of(cls, centers: Tensor | Sequence[Sequence[float]], root: Tensor | None = None) -> Self:
        """Heads at these centres, with one root per head or one for all heads; by default the identity."""
        center = as_centers(centers)
        heads, axes = center.shape
        return cls(center, (torch.eye(axes) if root is None else root).to(center).expand(heads, axes, axes))

    @classmethod
    def of_sizes(cls, sizes: Sequence[int]) -> Self:
        """Heads centred at zero, from `sizes` (heads, axes)."""
        return cls.of(torch.zeros(*sizes))

    @property
    def by_head(self) -> Tensor:
        """The centres."""
        return self.center

    @property
    def d_position(self) -> int:
        """Width of r_delta."""
        return self.dimensions * (self.dimensions + 3) // 2

    @property
    def centers(self) -> Tensor:
        """The centres."""
        return self.center

    @property
    def values(self) -> tuple[Tensor, ...]:
        """The centres and the roots."""
        return self.center, self.root

    def numbers(self) -> HeadNumbers:
        """Bounds on centres and precision, with which engines bound the error of absolute features."""
        # Let n be the number of axes, L the largest coordinate, and |P| the largest entry of the precision. The
        # products of a score sum to at most n^2 |P| L^2 for its terms P c k, and to half of that for its terms P k k.
        # Together that is 3 n L^2 times the sharpness n |P| / 2.
        heads = moved_to(self, "cpu")
        reach = heads.center.detach().abs().max().item() if self.heads else 0.0
        largest = heads.precision().detach().abs().max().item() if self.heads else 0.0
        axes = self.center.shape[1]
        return HeadNumbers(axes=axes, reach=reach, sharpness=axes * largest / 2, ellipses=heads.ellipses())

    def ellipses(self) -> tuple[ScoreEllipse, ...]:
        """Centre, variances and sharpness of each head; a nearly singular precision has infinite variances."""
        precision = self.precision().detach()
        if not bool(precision.isfinite().all()):
            return ()
        values, vectors = torch.linalg.eigh(precision)
        plain = values[:, :1] > SINGULAR * values[:, -1:]
        # `d_axis^2 <= (P^-1)_axis d^T P d`. The diagonal of the inverse is the sum of v_k^2 / lambda_k over the
        # eigenvectors; the eigenvalues also show whether the matrix has an inverse.
        variances = torch.where(plain, (vectors.square() / values[:, None]).sum(-1), math.inf)
        heads = zip(self.center.tolist(), variances.tolist(), values[:, -1].tolist(), strict=True)
        return tuple(ScoreEllipse(tuple(center), tuple(spread), sharpest) for center, spread, sharpest in heads)

    def precision(self) -> Tensor:
        """Sigma^{-1} of each head, `root^T root`."""
        root = self.root.double()
        return root.mT @ root

    def scores(self, grid: AttentionGrid, queries: Tensor, dtype: torch.dtype, image: Tensor | None = None) -> Tensor:
        """`-1/2 |root (displacement - center)|^2`, a sum of squares: (1, heads, queries, keys)."""
        center, root = self.center.to(dtype), self.root.to(dtype)
        away = [
            grid.displacement(axis, index) - center[:, axis, None, None]
            for axis, index in enumerate(grid.coordinates(queries))
        ]
        rows = [[root[:, row, axis, None, None] * part for axis, part in enumerate(away)] for row in range(len(away))]
        return -torch.stack([additive_scores(parts).square() for parts in rows]).sum(0)[None] / 2

    def directed_scores(self, toward: Tensor, grid: AttentionGrid, queries: Tensor) -> Tensor:
        """`toward . r_delta` with `r_delta = (delta, delta_i delta_j)`, for toward (..., queries, d_position)."""
        delta = [grid.displacement(axis, i).to(toward) for axis, i in enumerate(grid.coordinates(queries))]
        axes = len(delta)
        total = additive_scores([toward[..., axis, None] * part for axis, part in enumerate(delta)])
        for place, (first, second) in enumerate(pairs(axes)):
            parts = [torch.ones_like(part) for part in delta]
            parts[first] = delta[first]
            parts[second] = parts[second] * delta[second]
            total = total + toward[..., axes + place, None] * outer(parts)
        return total

    def split(self, toward: Tensor) -> tuple[Tensor, Tensor]:
        """The coefficients of `delta_i delta_j` and those of delta."""
        return toward[..., self.dimensions :], toward[..., : self.dimensions]

    def directed_features(self, toward: Tensor, grid: AttentionGrid) -> Tensor:
        """`(b - C q, c_ij)` for `toward = (b, c_ij)` at the query q.

        C is the symmetric matrix with `d^T C d / 2 = sum of c_ij d_i d_j`.
        """
        # With delta = k - q, a square of delta is a square of k, products of k and q, and a term of q alone, which
        # cancels in the softmax over k.
        sites, axes = grid.centred()[0].to(toward), self.dimensions
        linear = list(toward[..., :axes].unbind(-1))
        for place, (first, second) in enumerate(pairs(axes)):
            square = toward[..., axes + place]
            linear[first] = linear[first] - square * sites[:, second]
            linear[second] = linear[second] - square * sites[:, first]
        return torch.cat([torch.stack(linear, -1), toward[..., axes:]], -1)

    def features(self, grid: AttentionGrid, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """`(P (q + c), -P_ii / 2, -P_ij)` of the query q and `(k, k_i k_j)` of the key k, with P the precision."""
        sites, keys = grid.centred()
        key, precision, places = keys.to(dtype), self.precision(), pairs(self.dimensions)
        target = sites.double()[None] + self.center.double()[:, None]
        squares = torch.stack([-precision[:, i, j] / (2 if i == j else 1) for i, j in places], -1)
        query = torch.cat([target @ precision, squares[:, None].expand(-1, target.shape[1], -1)], -1)
        products = torch.stack([key[:, i] * key[:, j] for i, j in places], -1)
        return query.to(dtype)[None], torch.cat([key, products], -1)[None, None]


def pairs(axes: int) -> list[tuple[int, int]]:
    """All unordered pairs of axes, including an axis with itself.

    >>> pairs(2)
    [(0, 0), (0, 1), (1, 1)]
    """
    return [(first, second) for first in range(axes) for second in range(first, axes)]


def outer(parts: list[Tensor]) -> Tensor:
    """The product over the axes of `parts[axis]` (..., queries, keys of that axis): (..., queries, keys)."""
    total = parts[0]
    for part in parts[1:]:
        total = (total[..., None] * part[..., None, :]).flatten(-2)
    return total
