"""Soft shifts from absolute positions: sine-cosine channels whose inner products depend on key - query alone.

With waves `sin(w k), cos(w k)` of a key and those of a query turned by `w c`, `q . k = sum cos(w (k - q - c))`: largest
at key - query = c, and `const - alpha |k - q - c|^2` up to fourth order for amplitudes `a = 2 alpha / sum w^2`.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from conv2attn.theory.basis.grid import AttentionGrid, Sites

KEPT_SHARE = 0.95
"""The share of a quadratic head's attention that the cosine kernel must keep. More frequencies make smaller scores,
which depend less on the norms of tokens, and keep less of it."""


def grid_of(sides: Sequence[int]) -> AttentionGrid:
    """The grid on which every token is a query and a key."""
    return AttentionGrid(tuple(sides), Sites.everywhere(len(sides)))


def frequencies(side: int, count: int) -> Tensor:
    """`pi (i + 1) / (side + 1)` for i < count: `sum cos(w n)` has its only peak on |n| <= side at 0."""
    return math.pi * torch.arange(1, count + 1, dtype=torch.float64) / (side + 1)


def waves(sides: Sequence[int], count: int) -> Tensor:
    """The position channels (tokens, axes * 2 count): for each axis all sines, then all cosines."""
    places = grid_of(sides).key_coordinates().double().T
    angles = [place[:, None] * frequencies(side, count) for place, side in zip(places, sides, strict=True)]
    return torch.cat([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)], 1)


def readers(sides: Sequence[int], count: int, offset: Sequence[int], alpha: float) -> tuple[Tensor, Tensor]:
    """Maps of the position channels to queries and keys, (axes * 2 count, axes * 2 count) each, for which
    `q . k = sum over axes of a sum cos(w (key - query - offset))`, with `a = 2 alpha / sum w^2`."""
    query, key = [], []
    for side, shift in zip(sides, offset, strict=True):
        rates = frequencies(side, count)
        amplitude = math.sqrt(2 * alpha / float(rates.square().sum()))
        cosine, sine = (rates * shift).cos().diag(), (rates * shift).sin().diag()
        key.append(amplitude * torch.eye(2 * count, dtype=torch.float64))
        query.append(amplitude * torch.cat([torch.cat([cosine, sine], 1), torch.cat([-sine, cosine], 1)]))
    return torch.block_diag(*query), torch.block_diag(*key)


def scores(sides: Sequence[int], count: int, offset: Sequence[int], alpha: float) -> Tensor:
    """`q . k` of such a head for tokens of equal norm: (queries, keys)."""
    channels = waves(sides, count)
    query, key = readers(sides, count, offset, alpha)
    return (channels @ query.T) @ (channels @ key.T).T


def quadratic(sides: Sequence[int], offset: Sequence[int], alpha: float) -> Tensor:
    """`-alpha |key - query - offset|^2`: (queries, keys)."""
    return -alpha * grid_of(sides).squared_distance(tuple(offset)).double()


def attention_at_offset(attention: Tensor, sides: Sequence[int], offset: Sequence[int]) -> Tensor:
    """The attention (..., queries, keys) at query + offset, for each query for which that is on the grid."""
    return attention[..., grid_of(sides).squared_distance(tuple(offset)) == 0]


def fitting_count(sides: Sequence[int], alpha: float, numbers: int) -> int:
    """The number of frequencies per axis: as many as `numbers` and the sides allow, while the worst query keeps
    `KEPT_SHARE` of the quadratic head's attention; at least one."""
    origin = (0,) * len(sides)
    least = KEPT_SHARE * attention_at_offset(quadratic(sides, origin, alpha).softmax(-1), sides, origin)
    for count in range(min(numbers // (2 * len(sides)), *sides), 1, -1):
        if (attention_at_offset(scores(sides, count, origin, alpha).softmax(-1), sides, origin) >= least).all():
            return count
    return 1
