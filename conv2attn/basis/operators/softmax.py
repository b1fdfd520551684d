"""The common part of families of softmax operators: scores of pairs of tokens, and a softmax without subnormals."""

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from conv2attn.basis.grid import AttentionGrid, Sides, Sites
from conv2attn.basis.numbers import Numbers

MOST_KEYS = 2**24  # a row with more keys than this may hold subnormal weights, which are slow and not wrong


class Softmax(Protocol):
    """A family of softmax operators, one a head.

    Values are tensors, live parameters among them; `numbers` reads them once, and all that is decided of a family is
    decided from those numbers.
    """

    @property
    def heads(self) -> int:
        """Number of heads."""
        ...

    @property
    def values(self) -> tuple[Tensor, ...]:
        """The tensors from which `numbers` is read; none where nothing depends on their values."""
        ...

    def numbers(self) -> Numbers:
        """Centres and sharpness as Python numbers: reads the values, which synchronises an accelerator."""
        ...

    def scores(self, grid: AttentionGrid, queries: Tensor, dtype: torch.dtype, image: Tensor | None = None) -> Tensor:
        """The scores of some queries, (batch or 1, heads, queries, keys); `image` is the padded one."""
        ...


class Positions(Softmax, Protocol):
    """A family whose scores depend on positions alone."""

    def directed_scores(self, toward: Tensor, grid: AttentionGrid, queries: Tensor) -> Tensor:
        """`toward . r_delta` for vectors of each query, toward (..., queries, d_position): (..., queries, keys).

        No tensor of (queries, keys, d_position) is formed.
        """
        ...


def cut_softmax(scores: Tensor) -> Tensor:
    """Softmax over the last axis in which no weight is subnormal: one that could be is exactly 0.

    Products with subnormal operands are up to 156 times slower on a CPU. A score is dropped where it is below the
    largest of its row by more than `-log(tiny MOST_KEYS)`, with `tiny` the smallest normal number of the dtype: what
    remains weighs at least `tiny`, and what is cut weighs at most `tiny MOST_KEYS` per key, counted by
    `conv2attn.bounds.cut_mass`.
    """
    floor = scores.detach().amax(-1, keepdim=True) - cut_depth(scores.dtype)
    return torch.softmax(scores.masked_fill(scores < floor, -math.inf), -1)


def cut_depth(dtype: torch.dtype) -> float:
    """A score is dropped where it is below the largest of its row by more than this."""
    return -math.log(torch.finfo(dtype).tiny) - math.log(MOST_KEYS)


def additive_scores(parts: Sequence[Tensor]) -> Tensor:
    """The sum over the axes of `parts[axis]` (..., queries, keys of that axis): (..., queries, keys)."""
    total = parts[0]
    for part in parts[1:]:
        total = (total[..., None] + part[..., None, :]).flatten(-2)
    return total


def whole_matrix(family: Softmax, sides: Sides) -> Tensor:
    """The softmax of every query of a grid in float64, (heads, queries, keys)."""
    grid = AttentionGrid(sides, Sites.everywhere(len(sides)))
    scores = family.scores(grid, torch.arange(math.prod(sides)), torch.float64)
    return cut_softmax(scores)[0]
