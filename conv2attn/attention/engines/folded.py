"""Layers of many groups: profiles and weights are folded into kernels, `sum_h M_h R_h x C_h` into convolutions.

Far from the border the softmax is the same for every query, so that one kernel serves them all. Towards the border
each query along an axis has a softmax, and so a kernel, of its own.
"""

import math
from dataclasses import dataclass
from itertools import product
from typing import final

import torch
from torch import Tensor

from conv2attn.attention.engines.profiles import Block, blocks_along, keys_with_weight, weights_of
from conv2attn.attention.hardness import targets
from conv2attn.attention.recipe import Question
from conv2attn.basis import AttentionGrid, Basis, QuadraticSoftmax

CALL = 8 * 10**6  # measured: a small convolution takes as long as so many multiply-adds


@final
@dataclass(frozen=True)
class Fold:
    """Along each axis, runs of queries that see the same softmax: blocks, whose keys are those of the first query."""

    runs: tuple[tuple[Block, ...], ...]

    def cost(self, channels: int) -> int:
        """Multiply-adds for one image, with `channels` products per key and query."""
        areas = [[(b.stop - b.start) * (b.last - b.first) for b in runs] for runs in self.runs]
        return channels * math.prod(map(sum, areas)) + CALL * math.prod(map(len, areas))

    def patterns(self, operators: QuadraticSoftmax, grid: AttentionGrid, dtype: torch.dtype) -> Tensor:
        """The weights of each head on the taps of all kernels, one kernel after another: (heads, taps)."""
        profiles = []
        for axis, runs in enumerate(self.runs):
            shapes = [(block.shape(grid, axis)[0], 1, block.last - block.first) for block in runs]
            profiles.append([weights_of(operators, grid, axis, range(operators.heads), s, dtype)[:, 0] for s in shapes])
        found = []
        for kernel in product(*profiles):
            total = kernel[0]
            for profile in kernel[1:]:
                total = (total[:, :, None] * profile[:, None]).flatten(1)
            found.append(total)
        return torch.cat(found, 1)


def fold_for(question: Question, cost: int) -> Fold | None:
    """The fold of a layer with groups, if it takes fewer multiply-adds than `cost`.

    Not in half precision, which would round the folded kernels, nor where a convolution is no plain sum.
    """
    weights, numbers, grid = question.basis.weights, question.known.numbers, question.grid
    plain = question.known.indirect is None and question.dtype in (torch.float32, torch.float64)
    if weights.groups == 1 or question.traced or question.free or not numbers.centers or not plain:
        return None
    runs = []
    for axis, queries in enumerate(grid.queries):
        merged: list[Block] = []
        heads = range(question.basis.operators.heads)
        for block in blocks_along(numbers, heads, grid, axis, 1, question.dtype):
            same = merged and Block(merged[-1].start, merged[-1].start + 1, merged[-1].first, merged[-1].last).shape(
                grid, axis
            ) == block.shape(grid, axis)
            if same:
                merged[-1] = Block(merged[-1].start, block.stop, merged[-1].first, merged[-1].last)
            else:
                merged.append(block)
        if len(merged) > queries // 2:
            return None
        runs.append(tuple(merged))
    fold = Fold(tuple(runs))
    return fold if fold.cost(weights.d_out * weights.d_in // weights.groups) < cost else None


def folded_products(basis: Basis, sides: tuple[int, ...], dtype: torch.dtype) -> int:
    """How many more products than taps may be rounded in one output of this layer, on padded grids of up to `sides`.

    Each entry of a folded kernel is a sum over heads of a weight times its profiles; none is rounded of one-hot heads.
    """
    operators, groups = basis.operators, basis.weights.groups
    numbers = operators.numbers() if isinstance(operators, QuadraticSoftmax) else None
    if groups == 1 or numbers is None or not isinstance(targets(numbers, dtype, "cpu"), str):
        return 0
    widths = []
    for axis, side in enumerate(sides):
        reads = [
            keys_with_weight(alpha, center[axis], (2 * side, 2 * side), 4 * side + 1, dtype)
            for alpha, center in zip(numbers.alphas, numbers.centers, strict=True)
        ]
        widths.append(max(last for _, last in reads) - min(first for first, _ in reads))
    return len(numbers.alphas) + len(sides) + basis.weights.d_in // groups * math.prod(widths)


def run_folded(basis: Basis, image: Tensor, fold: Fold, kept: Tensor | None) -> Tensor:
    """The layer by one convolution for each kernel."""
    keys = basis.padding.pad(image)
    grid = AttentionGrid(tuple(keys.shape[2:]), basis.sites, image.device)
    patterns = fold.patterns(basis.operators, grid, image.dtype) if kept is None else kept
    sizes = [[block.last - block.first for block in runs] for runs in fold.runs]
    kernels = torch.tensordot(basis.weights.taps().permute(1, 2, 0), patterns, 1)
    parts = kernels.split([math.prod(size) for size in product(*sizes)], 2)
    pieces = [
        of_queries(basis, keys, blocks, part.unflatten(2, size))
        for blocks, size, part in zip(product(*fold.runs), product(*sizes), parts, strict=True)
    ]
    for axis in reversed(range(len(fold.runs))):
        count = len(fold.runs[axis])
        pieces = [torch.cat(pieces[at : at + count], 2 + axis) for at in range(0, len(pieces), count)]
    return pieces[0]


def of_queries(basis: Basis, keys: Tensor, blocks: tuple[Block, ...], kernel: Tensor) -> Tensor:
    """The output of a box of queries that share a kernel."""
    stride = basis.sites.stride
    for axis, block in enumerate(blocks):
        length = (block.stop - block.start - 1) * stride[axis] + block.last - block.first
        keys = keys.narrow(2 + axis, block.first, length)
    one, none = [1 for _ in blocks], [0 for _ in blocks]
    return torch.convolution(keys, kernel, basis.weights.bias, stride, none, one, False, none, basis.weights.groups)
