"""The fixed maps that replace the attention of a head."""

import numpy as np
import torch
from torch import Tensor

from conv2attn.span.graded_facts.effects import ReplacedBy
from conv2attn.theory.basis import Sides


def replacement(mean: Tensor, by: ReplacedBy, sides: Sides, leading: int) -> Tensor:
    """The map (queries, keys) that replaces a head with this mean attention over images.

    "mean" is the mean attention itself, "position" its mean over all pairs of one displacement on the grid, "shift" the
    key nearest to the displacement with the most attention, and "uniform" equal weights for all keys of the grid. Keys
    that a query never reads have no weight, and rows keep their sums over the pixels. A query that never reads its
    shift keeps its mean attention. Leading tokens have no displacement: as queries and as keys they keep their mean
    attention.
    """
    read = mean > 0
    if by == "mean":
        return mean
    code, grid, pixels = displacements(sides), mean[leading:, leading:], read[leading:, leading:]
    sums, table = by_displacement(grid, code)
    result = mean.clone()
    if by == "uniform":
        part = torch.ones_like(grid)
    elif by == "position":
        part = table[code]
    else:
        cells = np.stack(np.unravel_index(np.arange(int(np.prod(sides))), sides), -1)
        peak = np.array(np.unravel_index(int(sums.argmax()), tuple(2 * n - 1 for n in sides))) - np.array(sides) + 1
        # At the border the shift leaves the grid; the nearest key is what hard heads read there (E8 of docs/errata.md).
        target = np.clip(cells + peak, 0, np.array(sides) - 1)
        part = torch.zeros_like(grid)
        part[torch.arange(len(cells)), torch.from_numpy(np.ravel_multi_index(tuple(target.T), sides))] = 1
    # A key that no image reads is taken to be masked, and weight on it would be a change of the network's mask.
    part = part * pixels
    part = torch.where(part.sum(-1, keepdim=True) > 0, part, grid)
    total = part.sum(-1, keepdim=True)
    result[leading:, leading:] = part / torch.where(total > 0, total, 1) * grid.sum(-1, keepdim=True)
    return result


def displacements(sides: Sides) -> Tensor:
    """The row-major place of `key - query` in the box of all displacements, for each (query, key) of a grid."""
    cells = np.stack(np.unravel_index(np.arange(int(np.prod(sides))), sides), -1)
    away = cells[None] - cells[:, None] + np.array(sides) - 1
    return torch.from_numpy(np.ravel_multi_index(tuple(np.moveaxis(away, -1, 0)), tuple(2 * n - 1 for n in sides)))


def by_displacement(grid: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of attention (queries, keys) over the pairs of each displacement, and its mean over the pairs read."""
    sums = torch.zeros(int(code.max()) + 1, dtype=grid.dtype).index_add(0, code.flatten(), grid.flatten())
    pairs = torch.zeros_like(sums).index_add(0, code.flatten(), (grid > 0).flatten().to(grid))
    return sums, sums / pairs.clamp(min=1)
