"""Overlapping windows of an axis as one strided view, with a gradient that is a few strided sums."""

from typing import Any

import torch
from torch import Tensor


class Windows(torch.autograd.Function):
    """`lines.unfold(dim, size, step)`: windows of `size` numbers along `dim`, one every `step` numbers.

    The gradient adds up windows where they overlap: one strided sum for each step that a window is long, whatever the
    number of windows is. That of torch's unfold visits every number by itself, and took a fifth of a training step.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(lines: Tensor, dim: int, size: int, step: int) -> Tensor:
        """(..., side, ...) to (..., windows, ..., size): a view."""
        return lines.unfold(dim, size, step)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keeps the numbers, and no tensor."""
        lines, ctx.dim, ctx.size, ctx.step = inputs
        ctx.side = lines.shape[ctx.dim]

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        """The windows of the tangent."""
        return tangent.unfold(ctx.dim, ctx.size, ctx.step)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """The gradient of the lines, which has derivatives itself."""
        return overlapped(gradients[0], ctx.dim, ctx.step, ctx.side), None, None, None


def overlapped(windows: Tensor, dim: int, step: int, side: int) -> Tensor:
    """The sum of windows, (..., windows, ..., size), each at its place on an axis of `side` numbers."""
    parts = windows.movedim(-1, dim + 1)  # (..., windows, size, ...)
    count, size = parts.shape[dim], parts.shape[dim + 1]
    blocks = count - 1 + -(-size // step)
    shape = (*parts.shape[:dim], max(blocks * step, side), *parts.shape[dim + 2 :])
    total = parts.new_zeros(shape)
    places = total.narrow(dim, 0, blocks * step).unflatten(dim, (blocks, step))
    for first in range(0, size, step):
        part = parts.narrow(dim + 1, first, min(step, size - first))
        places.narrow(dim, first // step, count).narrow(dim + 1, 0, part.shape[dim + 1]).add_(part)
    return total.narrow(dim, 0, side)
