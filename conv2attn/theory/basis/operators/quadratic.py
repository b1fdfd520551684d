"""Heads with a centre and a sharpness, in particular quadratic ones (Cordonnier et al. 2020, Eq. 9)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self, final

import torch
from torch import Tensor

from conv2attn.theory.basis.grid import AttentionGrid, Sides, Sites
from conv2attn.theory.basis.numbers import HeadNumbers
from conv2attn.theory.basis.operator import Operator, apply, moved_to
from conv2attn.theory.basis.operators.softmax import Positions, cut_softmax


@dataclass(frozen=True, eq=False)
class Centered(Positions):
    """Heads with a centre and a sharpness, which tend to shifts as the sharpness grows.

    If the centre is a key, that key scores highest, and every other key scores less by at least alpha. If alpha is so
    large that all other weights are 0, the heads are the taps of a convolution.

    Args:
        center: in pixels, (heads, axes).
        alpha: sharpness, in inverse squared pixels, (heads).
    """

    sharpens: ClassVar[bool] = True

    center: Tensor  # (heads, axes)
    alpha: Tensor  # (heads)

    @classmethod
    def of(cls, centers: Tensor | Sequence[Sequence[float]], alpha: Tensor | Sequence[float] | float) -> Self:
        """Heads at these centres, with one sharpness per head or one for all heads.

        The dtype is that of a tensor of centres; centres given as numbers become float32.
        """
        center = as_centers(centers)
        return cls(center, torch.as_tensor(alpha, dtype=center.dtype, device=center.device).expand(len(center)))

    @classmethod
    def of_sizes(cls, sizes: Sequence[int]) -> Self:
        """Heads centred at zero, from `sizes` (heads, axes)."""
        return cls.of(torch.zeros(*sizes), 1.0)

    @property
    def by_head(self) -> Tensor:
        """The centres."""
        return self.center

    @property
    def values(self) -> tuple[Tensor, ...]:
        """The centres and the sharpness."""
        return self.center, self.alpha

    @property
    def centers(self) -> Tensor:
        """The centres."""
        return self.center

    def numbers(self) -> HeadNumbers:
        """The present centres and sharpness."""
        return HeadNumbers.read(self.center, self.alpha)

    def __str__(self) -> str:
        if self.alpha.is_meta:
            return super().__str__()
        low, high = self.alpha.min().item(), self.alpha.max().item()
        return f"{super().__str__()}, alpha={f'{low:g}' if low == high else f'{low:g}..{high:g}'}"


@final
@dataclass(frozen=True, eq=False)
class QuadraticSoftmax(Centered):
    """In head h, query q reads the softmax over all keys k of `-alpha[h] |k - q - center[h]|^2`.

    With `r_delta = (|delta|^2, delta)` and `v = -alpha (1, -2 center)`, the score is `v . r_delta` plus a constant.

    Source: Cordonnier et al. 2020, Eq. (9).
    """

    name: ClassVar[str] = "quadratic"
    is_separable: ClassVar[bool] = True
    has_features: ClassVar[bool] = True
    is_stationary: ClassVar[bool] = True
    reads_nearest: ClassVar[bool] = True

    @property
    def d_position(self) -> int:
        """Width of r_delta: one more than the number of axes."""
        return self.dimensions + 1

    def precision(self) -> Tensor:
        """`2 alpha` times the identity."""
        return 2 * self.alpha.double()[:, None, None] * torch.eye(self.dimensions, device=self.alpha.device).double()

    def axis_scores(self, displacement: Tensor, axis: int, dtype: torch.dtype, heads: slice = slice(None)) -> Tensor:
        """The part of `axis` in the scores: `-alpha (displacement - center)^2`, (heads, *displacement.shape)."""
        center, alpha = self.center[heads, axis, None, None].to(dtype), self.alpha[heads, None, None].to(dtype)
        return -alpha * (displacement - center).square()

    def directed_parts(self, toward: Tensor, grid: AttentionGrid, queries: Tensor | None = None) -> list[Tensor]:
        """For each axis, `toward . (delta^2, delta)`, for toward (..., queries, axes + 1)."""
        along = grid.coordinates(grid.every_query() if queries is None else queries)
        delta = [grid.displacement(axis, index).to(toward) for axis, index in enumerate(along)]
        return [toward[..., :1] * part.square() + toward[..., axis + 1, None] * part for axis, part in enumerate(delta)]

    def split(self, toward: Tensor) -> tuple[Tensor, Tensor]:
        """The coefficient of `|delta|^2` and those of delta."""
        return toward[..., :1], toward[..., 1:]

    def moved_centers(self, toward: Tensor) -> Tensor:
        """Where `toward . r_delta` plus a head's own score is largest, as a displacement (batch, heads, queries, axes).

        It is `(2 alpha center + b) / (2 (alpha - a))` for `toward = (a, b)`, and NaN unless alpha exceeds a.
        Source: claim DEFORM of proofs/.
        """
        squares, linear = self.split(toward)
        alpha = self.alpha.to(toward)[:, None, None]
        # The sum of two parabolas is a parabola. Its top is where the slopes cancel, if it still curves down.
        sharpness, pull = alpha - squares, 2 * alpha * self.center.to(toward)[:, None] + linear
        return torch.where(sharpness > 0, pull / (2 * sharpness), math.nan)

    def directed_features(self, toward: Tensor, grid: AttentionGrid) -> Tensor:
        """`(b - 2 a q, a)` for `toward = (a, b)` at the query q: the width is axes + 1."""
        # a |k - q|^2 + b . (k - q) = a |k|^2 + (b - 2 a q) . k + a term of q alone, which cancels in the softmax.
        sites = grid.centred()[0].to(toward)
        return torch.cat([toward[..., 1:] - 2 * toward[..., :1] * sites, toward[..., :1]], -1)

    def features(self, grid: AttentionGrid, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """`(2 alpha (q + c), -alpha)` of the query q and `(k, |k|^2)` of the key k: the width is axes + 1."""
        # -alpha |k - t|^2 = 2 alpha t . k - alpha |k|^2 - alpha |t|^2 with t = q + c; the last term is dropped. So the
        # features need axes + 1 numbers, and not one for each key.
        sites, keys = grid.centred()
        key = keys.to(dtype)
        alpha = self.alpha.to(dtype)[:, None, None]
        target = sites.to(dtype)[None] + self.center.to(dtype)[:, None]
        query = torch.cat([2 * alpha * target, -alpha.expand(-1, target.shape[1], 1)], -1)
        return query[None], torch.cat([key, key.square().sum(-1, keepdim=True)], -1)[None, None]


def isotropic(operator: Operator) -> QuadraticSoftmax | None:
    """The operator itself if it is a family of heads with scores `-alpha |delta - centre|^2`; otherwise None."""
    return operator if isinstance(operator, QuadraticSoftmax) else None


@apply.register
def _(operator: QuadraticSoftmax, image: Tensor, sides: Sides) -> Tensor:
    # Scores are a sum over the axes, so the softmax is a product of one softmax per axis. These are (side, side)
    # matrices instead of one (pixels, pixels) matrix. They are made in float64, since `as_matrix` defines the family
    # there.
    mixed, heads = image.expand(operator.heads, *image.shape), moved_to(operator, "cpu")
    shape = mixed.shape
    for axis, side in enumerate(sides):
        alone = AttentionGrid((side,), Sites.everywhere(1))
        scores = heads.axis_scores(alone.displacement(0), axis, torch.float64)
        lead = (operator.heads, math.prod(shape[1 : image.ndim - len(sides) + 1]), -1, side)
        moved = torch.movedim(mixed, axis - len(sides), -1)
        rest = moved.shape
        weights = cut_softmax(scores).to(image)[:, None]
        mixed = torch.movedim((moved.reshape(lead) @ weights.mT).reshape(rest), -1, axis - len(sides))
    return mixed


def as_centers(centers: Tensor | Sequence[Sequence[float]]) -> Tensor:
    """Centres as a tensor; numbers become float32, and a tensor is returned as it is."""
    # Under torch.set_default_device, torch.as_tensor would move a tensor to that device.
    return centers if isinstance(centers, Tensor) else torch.tensor(centers, dtype=torch.float32)
