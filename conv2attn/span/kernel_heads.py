"""A head as a depthwise convolution: its mean attention by displacement, cut to a kernel."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from conv2attn.span.graded_facts.replacement_maps import by_displacement, displacements
from conv2attn.theory.basis import Sides


@final
@dataclass(frozen=True, eq=False)
class KernelHead:
    """The parts of a head of `conv2attn.layers.attention.distilled`, and the map (queries, keys) that they make."""

    kernel: Tensor
    scale: Tensor
    from_leading: Tensor
    by_leading: Tensor
    map: Tensor


def kernel_head(mean: Tensor, sides: Sides, leading: int, size: int) -> KernelHead | str:
    """The convolution nearest to the mean attention of a head, (queries, keys); or why there is none.

    Of each displacement within `size` tokens a side, the mean over all pairs; rows keep their sums over the pixels.
    Leading tokens keep their mean attention, as queries and as keys.
    """
    code, grid = displacements(sides), mean[leading:, leading:]
    _, table = by_displacement(grid, code)
    box = table.unflatten(0, tuple(2 * side - 1 for side in sides))
    reach = tuple(min(size // 2, side - 1) for side in sides)
    inside = tuple(slice(side - 1 - r, side + r) for side, r in zip(sides, reach, strict=True))
    kernel = torch.zeros([size] * len(sides), dtype=mean.dtype)
    kernel[tuple(slice(size // 2 - r, size // 2 + r + 1) for r in reach)] = box[inside]
    cut = torch.zeros_like(box)
    cut[inside] = box[inside]
    part = cut.flatten()[code]
    total = part.sum(-1)
    if bool(((part > 0) & (grid == 0)).any()):
        return "some queries never read a displacement that others read"
    if not bool((total > 0).all()):
        return "some queries read nothing within the kernel"
    scale = grid.sum(-1) / total
    result = mean.clone()
    result[leading:, leading:] = part * scale[:, None]
    return KernelHead(kernel, scale, mean[leading:, :leading], mean[:leading], result.float())
