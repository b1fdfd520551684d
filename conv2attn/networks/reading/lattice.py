"""Centres of tokens, cut into the rows and columns of a lattice."""

import itertools
import math

import torch
from torch import Tensor

FAR_APART = 100_003
"""Larger than any side, so that a cell has one code."""
WAYS = 12
"""Ways to cut a line that are tried together with those of other axes."""
MOST_CELLS = 1024
"""Cells on a line, at most, unless a row has more tokens: of the noise of many heads a lattice could be made."""
EVEN, LONG, EVEN_LINE = 2.0, 64, 8.0
"""How many times wider than another a gap may be; from 64 values on 8 times: lines of so many random values, or pairs
of values with noise, are never so even."""


def apart(at: Tensor, live: Tensor) -> bool:
    """Whether the tokens of each row lie in different cells: a coarser lattice is no answer."""
    code = at[..., 0]
    for axis in range(1, at.shape[-1]):
        code = code * FAR_APART + at[..., axis]
    rows = torch.where(live, code.double(), -1 - torch.arange(code.shape[-1]).double()).sort(-1).values
    return bool((rows.diff(dim=-1) != 0).all())


def cuts(values: Tensor, ratio: float, equal: bool, most: int) -> list[tuple[Tensor, int]]:
    """Ways to cut a line of values at gaps `ratio` times as wide as any other gap, into `most` parts at most, which are
    equally large if `equal`.

    Where each part is one value, of one head or of all, no gap is `EVEN` times as wide as another, on a long line
    `EVEN_LINE` times: any values are apart by some gap.

    Returns: for each way, the part of each value and the number of parts, the finest first.
    """
    line, order = values.sort()
    gaps = line.diff()
    down, different = gaps.sort(descending=True).values.tolist(), 1 + int((gaps > 0).sum())
    found = []
    for parts in range(2, min(len(values), most) + 1):
        if len(values) % parts and equal:
            continue
        cut, rest = down[parts - 2], down[parts - 1] if parts - 1 < len(down) else 0.0
        even = parts < different or down[0] < (EVEN if different < LONG else EVEN_LINE) * cut
        if not (cut > ratio * rest and cut > 1e-3 / parts and even):
            continue
        label = torch.cat([torch.zeros(1, dtype=torch.long), (gaps >= cut).long().cumsum(0)])
        if not equal or label.bincount().min() == label.bincount().max():
            part = torch.empty_like(label)
            part[order] = label
            found.append((part, parts))
    return found[::-1][:WAYS]


def lattice(centre: Tensor, live: Tensor) -> tuple[Tensor, tuple[int, ...]] | None:
    """The cell of each live token (..., axes) and the sides of the lattice; None where the centres form none.

    Each cell is filled equally often at gaps twice as wide as any other, or at all at gaps four times as wide: windows
    that overlap fill a lattice unequally.
    """
    axes, most = centre.shape[-1], max(MOST_CELLS, live.shape[-1])
    # Gaps between rows are wide and those within narrow. That alone could be chance, so that cells also have to be
    # filled alike; overlapping windows are not, and have to show wider gaps in return.
    for ratio, equal in ((2.0, True), (4.0, False)):
        choices = [cuts(centre[live][:, axis], ratio, equal, most) for axis in range(axes)]
        for ways in sorted(itertools.product(*choices), key=lambda ways: -math.prod(way[1] for way in ways)):
            joint = torch.stack([way[0] for way in ways], -1)
            count = torch.unique(joint, dim=0, return_counts=True)[1]
            sides = tuple(way[1] for way in ways)
            if len(count) < math.prod(sides) or (equal and count.min() < count.max()):
                continue
            everywhere = torch.full(centre.shape, -1)
            everywhere[live] = joint
            if apart(everywhere, live):
                return everywhere, sides
    return None


def pooled(moments: Tensor, weight: Tensor, centre: Tensor, live: Tensor) -> Tensor:
    """Centres as means over the axis of heads or rows along which they agree best, where those agree well.

    Args:
        moments, weight: sums (..., axes) whose ratio is the centre.
    """
    lead = [
        axis for axis in range(live.ndim - 1) if live.shape[axis] > 1 and bool((live == live.narrow(axis, 0, 1)).all())
    ]

    def disagreement(axis: int) -> float:
        return float(centre.var(axis, unbiased=False)[live.narrow(axis, 0, 1).squeeze(axis)].mean())

    if not lead:
        return centre
    # Heads and rows see the same tokens through other weights, so that their mean is nearer to the true centre. It is
    # taken only where they agree to half a cell: windows at other places must not be averaged.
    axis = min(lead, key=disagreement)
    each = 1 / weight.mean(-2, keepdim=True).clamp_min(1e-300)
    mean = (moments * each).sum(axis, keepdim=True) / (weight * each).sum(axis, keepdim=True).clamp_min(1e-300)
    mean = mean.expand_as(centre)
    off = torch.where(live[..., None], centre - mean, 0).pow(2).movedim(axis, 0).flatten(1).sum(1)
    count = int(live.sum()) / live.shape[axis]
    worst = float((off.max() / count / centre.shape[-1]).sqrt())
    return mean if worst < 0.5 / count ** (1 / centre.shape[-1]) else centre
