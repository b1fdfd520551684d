"""Integer geometry: keys on a grid, the sites of queries among them, and the displacements from queries to keys.

Axes keep the order of the tensor (rows, columns), tokens are row-major, and `offset = key - query` always.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from conv2attn.errors import GeometryError

Offset = tuple[int, ...]
Sides = tuple[int, ...]


@final
@dataclass(frozen=True)
class Sites:
    """Query `o` is at key `before + o * stride`; the last `after` keys of an axis have no query.

    For a kernel, `before = dilation * floor((K - 1) / 2)` and `before + after = dilation * (K - 1)`, so every tap
    of every query is a key. The number of queries and their sites are affine in the sides, up to one floor division.
    """

    stride: Offset
    before: Offset
    after: Offset

    @staticmethod
    def everywhere(dimensions: int) -> "Sites":
        """One query at every key."""
        return Sites((1,) * dimensions, (0,) * dimensions, (0,) * dimensions)

    @staticmethod
    def of_kernel(kernel_size: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> "Sites":
        """The queries of a convolution: one for each position at which the dilated kernel fits."""
        before = tuple(d * ((k - 1) // 2) for k, d in zip(kernel_size, dilation, strict=True))
        after = tuple(d * (k - 1) - b for k, d, b in zip(kernel_size, dilation, before, strict=True))
        return Sites(tuple(stride), before, after)

    def without_stride(self) -> "Sites":
        """The sites at stride 1; every `stride`-th of them is a site of `self`."""
        return Sites((1,) * len(self.stride), self.before, self.after)

    def count(self, keys: Sides) -> Sides:
        """Number of queries on each axis of a key grid with these sides.

        Raises:
            GeometryError: an axis has no query (C2A121).
        """
        # Under a trace the sides are symbols, and a comparison would become a condition of the traced program.
        room = [side - b - a for side, b, a in zip(keys, self.before, self.after, strict=True)]
        if not torch.compiler.is_compiling() and min(room) < 1:
            spans = tuple(b + a + 1 for b, a in zip(self.before, self.after, strict=True))
            raise GeometryError(
                "C2A121",
                f"the padded grid {keys} is smaller than the dilated kernel {spans}",
                "Pass a larger input or less padding.",
            )
        return tuple((r - 1) // s + 1 for r, s in zip(room, self.stride, strict=True))

    def view(self, keys: Sides, offset: Offset) -> tuple[Any, ...]:
        """The index into an image of keys that selects pixel `site + offset` of every query, all on the grid."""
        starts = [b + o for b, o in zip(self.before, offset, strict=True)]
        slices = [
            slice(start, start + (n - 1) * s + 1, s)
            for start, n, s in zip(starts, self.count(keys), self.stride, strict=True)
        ]
        return (Ellipsis, *slices)


@final
@dataclass(frozen=True)
class AttentionGrid:
    """The keys and queries of one call: a box of keys, and queries at some of them.

    Its tensors are made on `device`.
    """

    keys: Sides
    sites: Sites
    device: torch.device | str = "cpu"

    @property
    def queries(self) -> Sides:
        """Number of queries on each axis."""
        return self.sites.count(self.keys)

    @property
    def shape(self) -> tuple[int, int]:
        """(number of queries, number of keys)."""
        return math.prod(self.queries), math.prod(self.keys)

    def every_query(self) -> Tensor:
        """The row-major numbers of all queries, int64."""
        return torch.arange(math.prod(self.queries), device=self.device)

    def coordinates(self, queries: Tensor) -> list[Tensor]:
        """The coordinates of queries given by their row-major numbers, as one tensor per axis."""
        # The remainder follows from the quotient: one division per axis, where `//` and `%` would be two.
        coordinates: list[Tensor] = []
        for side in reversed(self.queries):
            rows = queries // side
            coordinates.insert(0, queries - rows * side)
            queries = rows
        return coordinates

    def site(self, axis: int) -> Tensor:
        """Key coordinate of each query along `axis`, int64."""
        return self.sites.before[axis] + self.sites.stride[axis] * torch.arange(self.queries[axis], device=self.device)

    def longest_shift(self, axis: int) -> int:
        """The largest `|key - site|` along `axis`."""
        first = self.sites.before[axis]
        last = first + (self.queries[axis] - 1) * self.sites.stride[axis]
        return max(last, self.keys[axis] - 1 - first)

    def displacement(self, axis: int, queries: Tensor | None = None) -> Tensor:
        """`key - site` along `axis`: int64, (queries, keys) of that axis.

        Args:
            queries: coordinates of queries along the axis; by default all of them.
        """
        site = self.site(axis) if queries is None else self.sites.before[axis] + self.sites.stride[axis] * queries
        return torch.arange(self.keys[axis], device=self.device)[None, :] - site[:, None]

    def displacement_rows(self, queries: Tensor) -> Tensor:
        """`key - site` for queries given by their row-major numbers: int64, (queries, keys, axes)."""
        sites = [
            self.sites.before[axis] + self.sites.stride[axis] * index
            for axis, index in enumerate(self.coordinates(queries))
        ]
        return self.key_coordinates()[None] - torch.stack(sites, -1)[:, None]

    def key_coordinates(self) -> Tensor:
        """The coordinates of all keys, row-major: int64, (keys, axes)."""
        axes = [torch.arange(side, device=self.device) for side in self.keys]
        # cartesian_prod of a single axis returns a vector; the reshape makes it one column.
        return torch.cartesian_prod(*axes).reshape(-1, len(self.keys))

    def centred(self) -> tuple[Tensor, Tensor]:
        """Coordinates of queries (queries, axes) and of keys (keys, axes) relative to the middle key, int64."""
        # Scores depend on differences alone, so any origin serves. The middle halves the largest coordinate L, and the
        # rounding of absolute scores grows like L^2 (`absolute_score_error`).
        middle = [(side - 1) // 2 for side in self.keys]
        along = zip(self.coordinates(self.every_query()), self.sites.before, self.sites.stride, middle, strict=True)
        sites = torch.stack([stride * index + (before - half) for index, before, stride, half in along], -1)
        keys = [
            torch.arange(-half, side - half, device=self.device) for side, half in zip(self.keys, middle, strict=True)
        ]
        return sites, torch.cartesian_prod(*keys).reshape(-1, len(self.keys))

    def displacements(self) -> Tensor:
        """`key - site` for every pair of tokens: int64, (queries, keys, axes). For small grids."""
        return self.displacement_rows(self.every_query())

    def squared_distance(self, offset: Offset) -> Tensor:
        """`|displacement - offset|^2`, exact: int64, (queries, keys). 0 where the key is the target."""
        away = zip(self.displacements().unbind(-1), offset, strict=True)
        return torch.stack([(along - shift).square() for along, shift in away]).sum(0)

    def contains_targets(self, offset: Offset) -> bool:
        """Whether every query has its target `site + offset` on the grid."""
        # A site is affine in the query's number, so the first and the last query decide.
        return all(
            b + o >= 0 and b + o + (n - 1) * s < side
            for b, o, n, s, side in zip(
                self.sites.before, offset, self.queries, self.sites.stride, self.keys, strict=True
            )
        )
