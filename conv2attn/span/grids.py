"""Grids of queries and keys, and the offsets between them. Users may pass integers of any library.

There is one query at every key, a query at some of the keys (strides), or a cell of queries for every key (pooling).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, SupportsIndex, TypeGuard, final

import torch
from torch import Tensor

from conv2attn.errors import UsageError
from conv2attn.theory.basis import AttentionGrid, Offset, Sides, Sites

FARTHEST = 2**31
"""Offsets along one axis are below this many pixels. No grid is as long, and sums of two offsets fit int64."""
MOST_OFFSETS = 4096
"""A kernel has at most this many offsets, such as 64x64 or 16x16x16; an (offsets, offsets) matrix takes 128 MiB."""


def is_number(value: Any) -> TypeGuard[SupportsIndex]:
    """Whether `value` is one integer, of any library."""
    return hasattr(value, "__index__") and not getattr(value, "ndim", 0)


def as_integers(values: Any) -> tuple[int, ...]:
    """A sequence of integers of any library as a tuple, without rounding.

    Raises:
        UsageError: `values` is not a sequence of integers (C2A006).
    """
    try:
        return tuple(index(number) for number in values)
    except TypeError as error:
        raise UsageError(
            "C2A006",
            f"{values!r} is neither an integer nor a sequence of integers",
            "Pass one integer, or a sequence with one integer for each axis.",
        ) from error


def as_sides(grid: Sequence[int] | int | None, dimensions: int) -> Sides | None:
    """Sides as a tuple; one number is the side of all axes.

    Raises:
        UsageError: the sides are not integers (C2A006).
    """
    if grid is None:
        return None
    return (index(grid),) * dimensions if is_number(grid) else as_integers(grid)


def axes_named(sides: Any) -> int | None:
    """Number of axes of some sides; None if `sides` is None, or one number for all axes.

    Raises:
        UsageError: the sides are not integers (C2A006).
    """
    return None if sides is None or is_number(sides) else len(as_integers(sides))


def as_offsets(offsets: Any) -> tuple[Offset, ...]:
    """A sequence of offsets as a tuple of tuples.

    Raises:
        UsageError: an offset is not a sequence of integers (C2A006).
    """
    try:
        return tuple(as_integers(one_offset) for one_offset in offsets)
    except TypeError as error:
        raise UsageError(
            "C2A006", f"{offsets!r} is not a sequence of offsets", "Pass a list such as [(0, -1), (0, 0), (0, 1)]."
        ) from error


def check_extent(offsets: int, farthest: int) -> None:
    """Refuses kernels with too many offsets, or with offsets beyond any grid.

    Raises:
        UsageError: there are too many offsets, or an offset is too far (C2A504).
    """
    if offsets > MOST_OFFSETS:
        raise UsageError("C2A504", f"{offsets} offsets are more than {MOST_OFFSETS}", "Ask for a smaller kernel.")
    if farthest >= FARTHEST:
        reason = f"an offset of {farthest} pixels is farther than any grid"
        raise UsageError("C2A504", reason, "Ask for smaller offsets.")


@final
@dataclass(frozen=True)
class PooledGrid:
    """A grid of keys, each of which pools a cell of `cell` queries along each axis. Offsets count cells."""

    keys: Sides
    cell: int

    @property
    def queries(self) -> Sides:
        """Number of queries on each axis."""
        return tuple(side * self.cell for side in self.keys)

    @property
    def shape(self) -> tuple[int, int]:
        """(number of queries, number of keys)."""
        return math.prod(self.queries), math.prod(self.keys)

    def site(self, axis: int) -> Tensor:
        """Key coordinate of the cell of each query along `axis`, int64."""
        return torch.arange(self.queries[axis]) // self.cell

    def displacement(self, axis: int) -> Tensor:
        """`key - site` along `axis`: int64, (queries, keys) of that axis."""
        return torch.arange(self.keys[axis])[None, :] - self.site(axis)[:, None]


Grid = AttentionGrid | PooledGrid


def grid_of(name: str, queries: int, keys: int, sides: Sides | None, dimensions: int) -> Grid:
    """The grid of attention with these numbers of queries and keys.

    `sides` may be those of the keys or of the queries. If it is None, a line, square or cube of keys is inferred.

    Raises:
        UsageError: the sides do not fit, the keys form no square or cube, or the queries are related to the keys
            neither by an integer stride nor by integer cells (C2A503).
    """
    if sides is None:
        sides = root(name, keys, dimensions)
    elif math.prod(sides) not in (queries, keys) or min(sides) < 1:
        shape = "x".join(map(str, sides))
        tokens = f"{keys} tokens" if queries == keys else f"{queries} queries or {keys} keys"
        raise UsageError(
            "C2A503",
            f"{name}: a grid {shape} has {math.prod(sides)} pixels, not {tokens}",
            "Pass its sides with --grid, and the number of leading class tokens with --extra-tokens.",
        )
    # A stride is at most a side of the keys. The side of a cell is the ratio of queries to keys along one axis.
    ratio = max(queries / keys, keys / queries) ** (1 / len(sides))
    steps = range(2, 2 + max(*sides, round(ratio)))
    fitting = next((grid for grid in grids_with(tuple(sides), steps) if grid.shape == (queries, keys)), None)
    if fitting is None:
        raise UsageError(
            "C2A503",
            f"{name}: {no_common_grid(queries, keys)}",
            "Pass its sides with --grid, and the number of leading class tokens with --extra-tokens.",
        )
    return fitting


def sides_among(sides: Sides | None, counts: Sequence[int], others: Iterable[Sequence[int]]) -> Sides | None:
    """The sides of one layer's tokens, from the caller's `sides`, which may be those of another layer.

    The caller passes one grid for all layers of a network, which may have several resolutions. If the sides do not fit
    this layer's `counts` of queries or keys, but fit the counts of another layer, every side is scaled by one ratio.
    """
    if sides is None or math.prod(sides) in counts or min(sides) < 1:
        return sides
    # Sides that fit no layer are an error of the caller. They are returned unchanged, and refused later.
    if not any(math.prod(sides) in other for other in others):
        return sides
    for count in counts:
        ratio = (count / math.prod(sides)) ** (1 / len(sides))
        scaled = tuple(max(1, round(side * ratio)) for side in sides)
        if math.prod(scaled) == count:
            return scaled
    return sides


def noted(grid: Grid, inferred: bool) -> list[str]:
    """Notes for the report on pooled or strided queries, and on a grid that was inferred."""
    keys, queries = ("x".join(map(str, sides)) for sides in (grid.keys, grid.queries))
    if isinstance(grid, PooledGrid):
        return [f"{queries} queries attend to {keys} pooled keys: offsets count cells of {grid.cell} queries per side"]
    if grid.queries != grid.keys:
        return [f"{queries} queries are taken to be at the {keys} keys with a stride of {grid.sites.stride[0]}"]
    return [f"grid {keys} inferred from {grid.shape[1]} tokens"] if inferred and len(grid.keys) > 1 else []


def no_common_grid(queries: int, keys: int) -> str:
    """The reason why attention is not read: its queries and keys have no common grid."""
    return f"{queries} queries attend to {keys} keys, which do not form one grid"


def grids_with(sides: Sides, steps: Iterable[int]) -> Iterator[Grid]:
    """The grids whose keys or queries have these sides: first one query per key, then strides and cells, by step."""
    yield AttentionGrid(sides, Sites.everywhere(len(sides)))
    # The first grid with the right numbers is taken, so steps are tried from the smallest.
    for step in steps:
        yield strided(sides, step)
        yield PooledGrid(sides, step)
        yield strided(tuple(side * step for side in sides), step)
        if all(side % step == 0 for side in sides):
            yield PooledGrid(tuple(side // step for side in sides), step)


def strided(keys: Sides, step: int) -> AttentionGrid:
    """Queries on every `step`-th key from the first."""
    nothing = (0,) * len(keys)
    return AttentionGrid(keys, Sites((step,) * len(keys), nothing, tuple((side - 1) % step for side in keys)))


def root(name: str, tokens: int, dimensions: int) -> Sides:
    """The sides of the line, square or cube with this number of tokens.

    Raises:
        UsageError: the tokens form no square or cube (C2A503).
    """
    # The root is a float, so it is rounded and then checked in integers.
    side = round(tokens ** (1 / dimensions))
    if side**dimensions != tokens:
        shape = {2: "square", 3: "cube"}[dimensions]
        raise UsageError(
            "C2A503",
            f"{name}: {tokens} tokens do not form a {shape}",
            "Pass its sides with --grid, and the number of leading class tokens with --extra-tokens.",
        )
    return (side,) * dimensions
