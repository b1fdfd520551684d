"""Distances between two tensors, number by number, in float64."""

import math

import numpy as np
import torch
from torch import Tensor


def largest_difference(first: Tensor, second: Tensor) -> float:
    """max |first - second|; NaN if the first is not finite, infinite if only the second is not.

    Also infinite if shapes, dtypes or devices differ, or if there is nothing to compare."""
    if other_kind(first, second) or not first.numel():
        return math.inf
    return distance(first, second).max().item() if is_finite(first) else math.nan


def distance(first: Tensor, second: Tensor) -> Tensor:
    """|first - second| for each number: 0 for the same infinity or NaN in both, infinite if only one is finite."""
    p, q = wide(first), wide(second)
    apart = (p - q).abs()
    if not math.isfinite(apart.sum()):
        same = (p == q) | (p.isnan() & q.isnan())
        apart = apart.nan_to_num_(math.inf, math.inf).masked_fill_(same, 0.0)
    return apart


def is_finite(tensor: Tensor) -> bool:
    """Whether all numbers are finite; torch cannot decide it for 8-bit formats."""
    return bool((wide(tensor) if tensor.itemsize == 1 else tensor).isfinite().all())


def wide(tensor: Tensor) -> Tensor:
    """The numbers of any dtype, booleans too, in float64 on the CPU: not every device has float64."""
    return tensor.cpu().to(torch.complex128 if tensor.is_complex() else torch.float64)


def real_numbers(tensor: Tensor) -> Tensor:
    """The numbers of a tensor in float64, real and imaginary parts along one more axis."""
    return torch.view_as_real(wide(tensor).resolve_conj()) if tensor.is_complex() else wide(tensor)


def place_of_largest(tensor: Tensor) -> tuple[int, ...]:
    """The index of the largest number."""
    # torch.unravel_index imports sympy at its first call, which takes five times as long as a small certificate.
    return tuple(map(int, np.unravel_index(int(tensor.argmax()), tensor.shape)))


def other_kind(first: Tensor, second: Tensor) -> str:
    """The first of shape, dtype and device that differs between two tensors, in words; empty if none does."""
    for what in ("shape", "dtype", "device"):
        ours, theirs = (getattr(side, what) for side in (first, second))
        if ours != theirs:
            ours, theirs = (tuple(side) if what == "shape" else side for side in (ours, theirs))
            return f"has {what} {theirs}, not {ours}"
    return ""
