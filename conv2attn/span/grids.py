"""Grids of queries and of keys, and offsets between them, as users write them: integers of any library.

Queries stand on every key, on some of the keys (strides), or in the cells that keys pool.
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
"""Bound on an offset along one axis, in pixels: no grid is as long, and sums of two such numbers fit int64."""
MOST_OFFSETS = 4096
"""Most offsets of a kernel, as of 64x64 or 16x16x16: a float64 matrix of (offsets, offsets) takes 128 MiB."""


def is_number(value: Any) -> TypeGuard[SupportsIndex]:
    """Whether it is one integer, of any library."""
    return hasattr(value, "__index__") and not getattr(value, "ndim", 0)


def as_integers(values: Any) -> tuple[int, ...]:
    """A sequence of integers of any library as a tuple; nothing is rounded.

    Raises:
        UsageError: it is not a sequence of integers (C2A006).
    """
    try:
        return tuple(index(number) for number in values)
    except TypeError as error:
        raise UsageError(
            "C2A006",
            f"{values!r} is neither an integer nor one for each axis",
            "Pass an integer, or one for each axis.",
        ) from error


def as_sides(grid: Sequence[int] | int | None, dimensions: int) -> Sides | None:
    """Sides as a tuple; one number is a side of all axes.

    Raises:
        UsageError: they are not integers (C2A006).
    """
    if grid is None:
        return None
    return (index(grid),) * dimensions if is_number(grid) else as_integers(grid)


def axes_named(sides: Any) -> int | None:
    """Number of axes of some sides; None where sides are None, or one number for all axes.

    Raises:
        UsageError: they are not integers (C2A006).
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
        UsageError: there are too many, or one is too far (C2A504).
    """
    if offsets > MOST_OFFSETS:
        raise UsageError("C2A504", f"{offsets} offsets are more than {MOST_OFFSETS}", "Ask for a smaller kernel.")
    if farthest >= FARTHEST:
        raise UsageError("C2A504", f"an offset of {farthest} pixels is farther than any grid", "Ask for a smaller one.")


@final
@dataclass(frozen=True)
class PooledGrid:
    """Keys that are cells of `cell` queries along each axis. A query stands in its cell; offsets count cells."""

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

    `sides` are those of the keys or of the queries. None infers a line, square or cube of keys.

    Raises:
        UsageError: the sides do not fit, the keys form no square or cube, or queries and keys are related by no whole
            stride and no whole pooled cell (C2A503).
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
    # A stride is no longer than a side, and the cell of a pooled key is the ratio of both numbers along one axis.
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
    """The sides of one layer's tokens, where the caller's `sides` may be those of another layer.

    One grid serves all layers of a network with several resolutions: if the sides do not fit this layer's `counts` of
    queries or keys but fit one of `others`, every side is scaled by the same ratio.
    """
    if sides is None or math.prod(sides) in counts or min(sides) < 1:
        return sides
    # Sides that fit no layer are a mistake of the caller's, and are refused as they are.
    if not any(math.prod(sides) in each for each in others):
        return sides
    for count in counts:
        ratio = (count / math.prod(sides)) ** (1 / len(sides))
        scaled = tuple(max(1, round(side * ratio)) for side in sides)
        if math.prod(scaled) == count:
            return scaled
    return sides


def noted(grid: Grid, inferred: bool) -> list[str]:
    """Notes for the report: pooled or strided queries, and a grid that was inferred."""
    keys, queries = ("x".join(map(str, sides)) for sides in (grid.keys, grid.queries))
    if isinstance(grid, PooledGrid):
        return [f"{queries} queries attend to {keys} pooled keys: offsets count cells of {grid.cell} queries per side"]
    if grid.queries != grid.keys:
        return [f"{queries} queries are taken to stand on the {keys} keys with a stride of {grid.sites.stride[0]}"]
    return [f"grid {keys} inferred from {grid.shape[1]} tokens"] if inferred and len(grid.keys) > 1 else []


def no_common_grid(queries: int, keys: int) -> str:
    """The reason why attention is not read: its queries and keys stand on no common grid."""
    return f"{queries} queries attend to {keys} keys, which are not one grid"


def grids_with(sides: Sides, steps: Iterable[int]) -> Iterator[Grid]:
    """The grids whose keys or queries have these sides: first one query on every key, then each step in turn."""
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
    # The root is a float: it is rounded, and checked in integers.
    side = round(tokens ** (1 / dimensions))
    if side**dimensions != tokens:
        shape = {2: "square", 3: "cube"}[dimensions]
        raise UsageError(
            "C2A503",
            f"{name}: {tokens} tokens do not form a {shape}",
            "Pass its sides with --grid, and the number of leading class tokens with --extra-tokens.",
        )
    return (side,) * dimensions
