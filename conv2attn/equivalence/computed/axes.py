"""What the axes of grids and outputs are called."""

from collections.abc import Sequence

GRID = {0: (), 1: ("position",), 2: ("row", "column"), 3: ("plane", "row", "column")}
OUTPUT = {2: ("class",), **{axes + 2: ("channel", *GRID[axes]) for axes in (1, 2, 3)}}


def axis_names(axes: int) -> tuple[str, ...]:
    """The axes of an output by torch's convention: images, then classes, or channels and the axes of a grid."""
    return ("image", *OUTPUT.get(axes, [f"axis {axis}" for axis in range(1, axes)]))[:axes]


def in_axes(place: Sequence[int]) -> str:
    """A place in an output, its axes named."""
    return ", ".join(f"{name} {number}" for name, number in zip(axis_names(len(place)), place, strict=True))
