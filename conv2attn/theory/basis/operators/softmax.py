"""Families of softmax operators: scores of pairs of tokens, and a softmax without subnormals."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from conv2attn.theory.basis.grid import AttentionGrid, Sides, Sites
from conv2attn.theory.basis.operator import Operator, as_matrix, moved_to, output_sides, terms

MOST_KEYS = 2**24  # a row with more keys than this may hold subnormal weights, which are slow but not wrong


class Positions(Operator, ABC):
    """A family of softmax operators, one per head, whose scores depend on positions alone.

    Its fields are tensors, which may be live parameters. `numbers` reads them once, and every decision about a family
    is made from those numbers. A new family needs a file with its scores and a line in `FAMILIES`. Its matrix and its
    product follow from the scores, and the tests of all families then run on it too.

    `name` is the name of the family in `FAMILIES`, in files and on the command line. `shared` names the fields that
    make r_delta and belong to no single head.
    """

    name: ClassVar[str]
    shared: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    @abstractmethod
    def of(cls, *arguments: Any, **named: Any) -> Self:
        """Heads from the arguments of a user; learned numbers are drawn at random."""

    @classmethod
    @abstractmethod
    def of_sizes(cls, sizes: Sequence[int]) -> Self:
        """Heads with these `sizes` and any values."""

    @property
    def sizes(self) -> list[int]:
        """The integers from which `of_sizes` makes tensors of the same shapes; by default the shape of `by_head`."""
        return [*self.by_head.shape]

    @property
    @abstractmethod
    def by_head(self) -> Tensor:
        """The field whose first two axes are the heads and the axes of the grid, (heads, axes, ...)."""

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.by_head.shape[0]

    @property
    def dimensions(self) -> int:
        """Number of axes of the grid."""
        return self.by_head.shape[1]

    @property
    @abstractmethod
    def d_position(self) -> int:
        """Width of r_delta."""

    def scores(self, grid: AttentionGrid, queries: Tensor, dtype: torch.dtype, image: Tensor | None = None) -> Tensor:
        """The scores of some queries, (1, heads, queries, keys); by default the sum of the parts of the axes."""
        return additive_scores(self.parts(grid, queries, dtype))[None]

    def parts(self, grid: AttentionGrid, queries: Tensor, dtype: torch.dtype) -> list[Tensor]:
        """For scores that are a sum over the axes, the part of each axis: (heads, queries, keys of that axis)."""
        positions = self.on(grid)
        along = enumerate(grid.coordinates(queries))
        return [positions.axis_scores(grid.displacement(axis, index), axis, dtype) for axis, index in along]

    def directed_parts(self, toward: Tensor, grid: AttentionGrid, queries: Tensor | None = None) -> list[Tensor]:
        """For `directed_scores` that are a sum over the axes, the part of each axis: (..., queries, keys of that axis).

        Args:
            toward: (..., queries, d_position).
            queries: row-major numbers; by default all queries.
        """
        self.has_none("directed_parts")

    def split(self, toward: Tensor) -> tuple[Tensor, Tensor]:
        """Splits vectors (..., d_position), factors of r_delta, into coefficients of squares and of displacements."""
        self.has_none("split")

    def directed_features(self, toward: Tensor, grid: AttentionGrid) -> Tensor:
        """Features of every query, (..., queries, width), for toward (..., queries, d_position).

        Their inner product with the `features` of a key is `toward . r_delta` up to a term of the query alone.
        """
        self.has_none("directed_features")

    def directed_scores(self, toward: Tensor, grid: AttentionGrid, queries: Tensor) -> Tensor:
        """`toward . r_delta` for one vector per query, toward (..., queries, d_position): (..., queries, keys).

        By default the sum of the parts of the axes. No tensor of (queries, keys, d_position) is formed.
        """
        return additive_scores(self.directed_parts(toward, grid, queries))

    def __str__(self) -> str:
        return f"{self.name}, heads={self.heads}, dimensions={self.dimensions}"


@terms.register
def _(operator: Positions) -> int:
    return operator.heads


@output_sides.register
def _(operator: Positions, sides: Sides) -> Sides:
    return sides


@as_matrix.register
def _(operator: Positions, sides: Sides) -> Tensor:
    grid, heads = AttentionGrid(sides, Sites.everywhere(len(sides))), moved_to(operator, "cpu")
    return cut_softmax(heads.scores(grid, torch.arange(math.prod(sides)), torch.float64))[0]


def cut_softmax(scores: Tensor) -> Tensor:
    """Softmax over the last axis without subnormal weights: a weight that could be subnormal is exactly 0.

    Products with subnormal operands are up to 156 times slower on a CPU. A score is dropped if it is below the largest
    score of its row by more than `-log(tiny MOST_KEYS)`, where `tiny` is the smallest normal number of the dtype. A
    remaining weight is then at least `tiny`. A dropped weight is at most `tiny MOST_KEYS`, which
    `conv2attn.theory.bounds.soft_mixing_bound` counts.
    """
    # Which scores are dropped is a step function of slope 0. Without `detach` the largest score would get a gradient.
    floor = scores.detach().amax(-1, keepdim=True) - cut_depth(scores.dtype)
    return torch.softmax(scores.masked_fill(scores < floor, -math.inf), -1)


def cut_depth(dtype: torch.dtype) -> float:
    """The distance below the largest score of a row beyond which `cut_softmax` drops a score."""
    return -math.log(torch.finfo(dtype).tiny) - math.log(MOST_KEYS)


def additive_scores(parts: Sequence[Tensor]) -> Tensor:
    """The sum over the axes of `parts[axis]` (..., queries, keys of that axis): (..., queries, keys)."""
    total = parts[0]
    for part in parts[1:]:
        total = (total[..., None] + part[..., None, :]).flatten(-2)
    return total
