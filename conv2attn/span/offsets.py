"""Arguments of users in one form: whole numbers, offsets, arrays."""

from collections.abc import Sequence
from operator import index
from typing import Any, SupportsIndex, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray

from conv2attn.basis import Offset, Sides
from conv2attn.errors import UsageError

FARTHEST = 2**31
"""Pixels that no offset goes beyond: no grid is as long, and sums of two of them are still numbers of int64."""
MOST_OFFSETS = 4096
"""Offsets of a kernel of 64x64 or 16x16x16, the square of whose number is still a matter of 128 MiB."""


def is_number(value: Any) -> TypeGuard[SupportsIndex]:
    """Whether it is an integer of any library, not several."""
    return hasattr(value, "__index__") and not getattr(value, "ndim", 0)


def as_integers(values: Any) -> tuple[int, ...]:
    """Integers of any library; nothing is rounded.

    Raises:
        UsageError: they are not (C2A006).
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
    """Number of axes that sides name; None where there are none, or one number for all axes.

    Raises:
        UsageError: they are not integers (C2A006).
    """
    return None if sides is None or is_number(sides) else len(as_integers(sides))


def as_offsets(offsets: Any) -> tuple[Offset, ...]:
    """Offsets, as they are.

    Raises:
        UsageError: they are not several integers each (C2A006).
    """
    try:
        return tuple(as_integers(one_offset) for one_offset in offsets)
    except TypeError as error:
        raise UsageError(
            "C2A006", f"{offsets!r} is not a sequence of offsets", "Pass a list such as [(0, -1), (0, 0), (0, 1)]."
        ) from error


def check_extent(offsets: int, farthest: int) -> None:
    """Refuses kernels of more offsets than can be looked at, or farther than any grid.

    Raises:
        UsageError: they are (C2A504).
    """
    if offsets > MOST_OFFSETS:
        raise UsageError("C2A504", f"{offsets} offsets are more than {MOST_OFFSETS}", "Ask for a smaller kernel.")
    if farthest >= FARTHEST:
        raise UsageError("C2A504", f"an offset of {farthest} pixels is farther than any grid", "Ask for a smaller one.")


def as_array(name: str, array: Any) -> NDArray[Any]:
    """An array, or a tensor wherever and however it is held; bfloat16 as float32.

    Raises:
        UsageError: it is neither, or a tensor without numbers (C2A502).
    """
    if not isinstance(array, torch.Tensor):
        if not hasattr(array, "dtype") or not hasattr(array, "shape"):
            raise UsageError(
                "C2A502",
                f"{name} is of class {type(array).__name__}, neither a layer, array nor tensor",
                "Pass the probabilities after the softmax, as an array (heads, queries, keys).",
            )
        return np.asarray(array)
    if array.is_meta:
        raise UsageError(
            "C2A502",
            f"{name} is on the meta device, and has no numbers",
            "Give it weights first: network.to_empty(device='cpu'), then load_state_dict.",
        )
    strided = array.detach().to_dense() if array.layout != torch.strided else array.detach()
    return np.asarray((strided.float() if strided.dtype == torch.bfloat16 else strided).cpu().numpy())
