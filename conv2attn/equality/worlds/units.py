"""Units of rounding: the difference of two arguments, divided by their changes under shaking."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from conv2attn.equality.worlds.shadows import GAIN, SHAKES, Unfollowed, groups_of

LIMIT = 8.0
"""Differences up to this count as rounding.

Correct folds of 19 real networks showed at most 5.7 units, mistakes of ports at least 36.
"""
# The weight of similar elements where their estimate is averaged with an element's own mean square: four shakes may not
# move that element.
SHARE = 0.5
Chunk = tuple[Tensor, Tensor, Tensor]  # (arguments, mean squares, results), each of shape (n, worlds)


def mean_squares(copies: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """The mean square of the changes under shaking, (worlds, n).

    Raises:
        Unfollowed: all numbers are so small that differences between them vanish.
    """
    out = []
    for true, *shaken in groups_of(copies):
        largest = max(map(abs, map(float, true.aminmax()))) if true.numel() else 0.0
        if 0 < largest < torch.finfo(dtype).tiny / torch.finfo(dtype).eps:
            raise Unfollowed("numbers so small that differences between them vanish")
        true = true.to(dtype)
        total, move = torch.zeros_like(true), torch.empty_like(true)
        # A repeated copy is the same tensor: it is computed once, and counts as often as it occurs.
        for t in {id(t): t for t in shaken}.values():
            torch.sub(t, true, out=move)
            times = sum(t is each for each in shaken)
            total.addcmul_(move, move, value=times / (SHAKES * GAIN[dtype] ** 2))
        # Minus the error of storing the shaken number itself; otherwise small differences would be accepted.
        stored = (torch.finfo(dtype).eps / 2 / GAIN[dtype]) ** 2
        total.addcmul_(true, true, value=-stored).clamp_(min=0.0)
        # The estimate from similar elements is a product of one factor per axis: those of its image, channel, row and
        # column.
        axes, rows = range(total.dim()), total.mean(-1, keepdim=True)
        mean = alike = rows.mean()
        for d in axes:
            along = total if d == axes[-1] else rows
            alike = alike * (along.mean([i for i in axes if i != d], keepdim=True) / mean).nan_to_num_(0.0)
        # That estimate is capped at 256 times the element's own mean square, so that numbers that do not move have no
        # tolerance. The cap is raised by the rounding of the number itself: a small move may be lost in a large number,
        # for example in a residual sum with a channel of small weights.
        most = torch.mul(total, 256, out=move).addcmul_(true, true, value=stored)
        total.lerp_(torch.minimum(alike, most, out=move), SHARE)
        # Where exact numbers cancel, the rounding of float64 remains, which this floor accepts. In a tensor of small
        # numbers alone it would hide the numbers themselves, so it is at most 1e-7 of the largest number.
        out.append(total.add_(min(1e-14, 1e-7 * largest) ** 2 / 2).reshape(-1))
    return torch.stack(out)


def deviations(first: Tensor, squares: Tensor, second: Tensor, others: Tensor) -> Tensor:
    """The differences of arguments in units, (n,): the largest over all worlds.

    Args:
        first, second: (worlds, n), with their mean squares `squares` and `others`.
    """
    out = torch.zeros(second.shape[1], dtype=others.dtype)
    for a, b, s, t in zip(first, second, squares, others, strict=True):
        torch.maximum(out, (a - b).to(t.dtype).abs_().div_(tolerance(s, t, a.to(t.dtype))), out=out)
    return out


def tolerance(squares: Tensor, others: Tensor, values: Tensor) -> Tensor:
    """One unit at each element."""
    least = torch.finfo(squares.dtype).tiny  # zeros have no size
    return (squares + others).sqrt_().add_(values.abs(), alpha=1e-14).add_(least)


def nearest(chunk: Chunk, values: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    """For each argument, the chunk row that agrees best, and the largest deviation over all worlds in units."""
    keys, others = chunk[:2]
    # Sorted by the sum over worlds: after a maximum many arguments are equal in some worlds, so no single world
    # suffices.
    order, sums = keys.sum(1), values.sum(1)
    reach = 2 * LIMIT * tolerance(squares, squares, values).sum(1)
    low, high = torch.searchsorted(order, sums - reach), torch.searchsorted(order, sums + reach)
    low, high = low.sub_(1).clamp_(0), high.add_(1).clamp_(max=len(keys))  # with the neighbours, which the report shows
    best = torch.full((len(values),), math.inf, dtype=torch.float64)
    pick = torch.zeros(len(values), dtype=torch.long)
    active, step = torch.arange(len(values)), 0
    while len(active) and step < 500:
        row = low[active] + step
        units = deviations(keys[row].T, others[row].T, values[active].T, squares[active].T)
        better = units < best[active]
        best[active[better]], pick[active[better]] = units[better], row[better]
        step += 1
        active = active[(low[active] + step < high[active]) & (best[active] > 0.5)]
    return pick, best
