"""Quadratic heads: softmax of a squared distance to a centre (Cordonnier et al. 2020, Eq. 9)."""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from conv2attn.basis.grid import AttentionGrid, Sides, Sites
from conv2attn.basis.numbers import Numbers
from conv2attn.basis.operators.rules import apply
from conv2attn.basis.operators.softmax import additive_scores, cut_softmax


@final
@dataclass(frozen=True, eq=False)
class QuadraticSoftmax:
    """In head h, query q reads the softmax over all keys k of `-alpha[h] |k - q - center[h]|^2`.

    Args:
        center: in pixels, (heads, axes).
        alpha: sharpness, in inverse squared pixels, (heads).
    """

    center: Tensor
    alpha: Tensor

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.center.shape[0]

    @property
    def values(self) -> tuple[Tensor, ...]:
        """The centres and the sharpness."""
        return self.center, self.alpha

    def numbers(self) -> Numbers:
        """Centres and sharpness as they are now."""
        return Numbers.read(self.center, self.alpha)

    def axis_scores(
        self, displacement: Tensor, axis: int, dtype: torch.dtype, heads: list[int] | None = None
    ) -> Tensor:
        """The part of `axis` in the scores: `-alpha (displacement - center)^2`, (heads, *displacement.shape).

        With `heads`, `displacement` may differ from one of them to the next: its first axis is then theirs, or 1.
        """
        center, alpha = self.center[:, axis, None, None].to(dtype), self.alpha[:, None, None].to(dtype)
        if heads is not None:
            center, alpha = center[heads], alpha[heads]
        return -alpha * (displacement - center).square()

    def scores(self, grid: AttentionGrid, queries: Tensor, dtype: torch.dtype, image: Tensor | None = None) -> Tensor:
        """`-alpha |displacement - center|^2`: (1, heads, queries, keys); 0 at an exact target."""
        parts = [
            self.axis_scores(grid.displacement(axis, index), axis, dtype)
            for axis, index in enumerate(grid.coordinates(queries))
        ]
        return additive_scores(parts)[None]

    def directed_scores(self, toward: Tensor, grid: AttentionGrid, queries: Tensor) -> Tensor:
        """`toward . r_delta` with `r_delta = (|delta|^2, delta)`, for toward (..., queries, axes + 1)."""
        delta = [grid.displacement(axis, index).to(toward) for axis, index in enumerate(grid.coordinates(queries))]
        return additive_scores(
            [toward[..., :1] * part.square() + toward[..., axis + 1, None] * part for axis, part in enumerate(delta)]
        )


@apply.register
def _(operator: QuadraticSoftmax, image: Tensor, sides: Sides) -> Tensor:
    mixed = image.expand(operator.heads, *image.shape)
    shape = mixed.shape
    for axis, side in enumerate(sides):
        alone = AttentionGrid((side,), Sites.everywhere(1))
        scores = operator.axis_scores(alone.displacement(0), axis, torch.float64)
        lead = (operator.heads, math.prod(shape[1 : image.ndim - len(sides) + 1]), -1, side)
        moved = torch.movedim(mixed, axis - len(sides), -1)
        rest = moved.shape
        weights = cut_softmax(scores).to(image)[:, None]
        mixed = torch.movedim((moved.reshape(lead) @ weights.mT).reshape(rest), -1, axis - len(sides))
    return mixed
