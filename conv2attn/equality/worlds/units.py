"""Units of rounding: how far two arguments are apart, divided by what shaking changes in them."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from conv2attn.equality.worlds.shadows import GAIN, SHAKES, groups_of

LIMIT = 8.0
"""Units that count as rounding: honest folds of 19 real networks showed at most 5.7, mistakes of ports 36 and more."""
SHARE = 0.5  # of an element's mean square, what comes from alike elements: four shakes leave some alone by chance
Chunk = tuple[Tensor, Tensor, Tensor]  # (arguments, mean squares, results), each of shape (n, worlds)


def mean_squares(copies: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """The mean square of what shaking changes, (worlds, n)."""
    out = []
    for true, *shaken in groups_of(copies):
        true = true.to(dtype)
        total, move = torch.zeros_like(true), torch.empty_like(true)
        # Repetitions of one copy are one tensor.
        for t in {id(t): t for t in shaken}.values():
            torch.sub(t, true, out=move)
            times = sum(t is each for each in shaken)
            total.addcmul_(move, move, value=times / (SHAKES * GAIN[dtype] ** 2))
        # The product of the means along all axes: what the image, channel, row and column have in common.
        axes, rows = range(total.dim()), total.mean(-1, keepdim=True)
        mean = alike = rows.mean()
        for d in axes:
            along = total if d == axes[-1] else rows
            alike = alike * (along.mean([i for i in axes if i != d], keepdim=True) / mean).nan_to_num_(0.0)
        # At most 256 times its own square: what is exact stays exact.
        total.lerp_(torch.minimum(alike, torch.mul(total, 256, out=move), out=move), SHARE)
        if GAIN[dtype] > 1:
            # Less what storing the shaken number itself makes, else small differences would be forgiven.
            total.addcmul_(true, true, value=-((2.0**-24 / GAIN[dtype]) ** 2)).clamp_(min=0.0)
        out.append(total.reshape(-1))
    return torch.stack(out)


def deviations(first: Tensor, squares: Tensor, second: Tensor, others: Tensor) -> Tensor:
    """How far arguments are apart in units, (n,): the largest of all worlds.

    Args:
        first, second: (worlds, n), with their mean squares `squares` and `others`.
    """
    out = torch.zeros(second.shape[1], dtype=others.dtype)
    for a, b, s, t in zip(first, second, squares, others, strict=True):
        torch.maximum(out, (a - b).to(t.dtype).abs_().div_(tolerance(s, t, a.to(t.dtype))), out=out)
    return out


def tolerance(squares: Tensor, others: Tensor, values: Tensor) -> Tensor:
    """One unit at each element."""
    return (squares + others).sqrt_().add_(values.abs(), alpha=1e-14).add_(1e-14)


def nearest(chunk: Chunk, values: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    """For each argument the row of the chunk that agrees best, and the largest deviation of all worlds in units."""
    keys, others = chunk[:2]
    # Sorted by the sum over worlds: after a maximum many arguments are equal in some worlds, so no single one will do.
    order, sums = keys.sum(1), values.sum(1)
    reach = 2 * LIMIT * tolerance(squares, squares, values).sum(1)
    low, high = torch.searchsorted(order, sums - reach), torch.searchsorted(order, sums + reach)
    low, high = low.sub_(1).clamp_(0), high.add_(1).clamp_(max=len(keys))  # with the neighbours, for the report
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
