"""Which of several exact engines is the cheapest: a small model of cost, measured in benchmarks/."""

import math
from typing import Any

import torch

from conv2attn.attention.engines.compiled import Frame, frame_of
from conv2attn.attention.recipe import Question

SLOW = ("Slow2d", "Slow3d")
LONG_COLUMNS = 24 * 2**20  # measured: from 27 MiB of columns on, `gather` takes 0.3 to 0.85 of the time of `conv`


def writes_long_columns(question: Question) -> bool:
    """Whether torch's convolution writes the pixels of all taps to memory first, more than `LONG_COLUMNS` bytes.

    It does so where oneDNN does not serve the dtype or the shape, as of torch 2.13: for kernels 3x3x3 on one image, and
    in float64. `gather` writes and multiplies them slab by slab. In training steps both take as long.
    """
    if question.traced or question.device.type != "cpu" or torch.is_grad_enabled():
        return False
    weights, heads, queries = question.basis.weights, question.basis.operators.heads, question.grid.shape[0]
    columns = math.prod(question.shape[:2]) * heads * queries * question.dtype.itemsize
    if heads == 1 or columns <= LONG_COLUMNS:
        return False
    points, sides = question.facts.lattice, question.shape[2:]
    assert points is not None
    none, frame = (0,) * len(sides), frame_of(question.basis, points)
    if frame is None:
        sides, frame = question.grid.keys, Frame(none, none, False)
    image = torch.empty(*question.shape[:2], *sides, dtype=question.dtype)
    kernel = torch.empty(weights.d_out, weights.d_in // weights.groups, *points.kernel_size, dtype=question.dtype)
    settings: Any = (question.basis.sites.stride, frame.before, points.dilation, False, none, weights.groups, None)
    return not frame.transposed and torch._C._select_conv_backend(image, kernel, None, *settings).name in SLOW


def cheapest(question: Question) -> str:
    """ "separable" or "dense", whichever moves and multiplies less for this batch, these widths and this grid."""
    if question.traced:
        return "separable"
    return "dense" if dense_cost(question) < separable_cost(question) else "separable"


def dense_may_win(question: Question) -> bool:
    """Whether all pairs are few enough to be timed beside other engines."""
    return dense_cost(question) < FAR * separable_cost(question)


FAR = 16.0  # chosen: by this factor the model of cost is never wrong
DENSE_PASSES = 12.0  # per attention weight: its scores, exponentials and casts, in multiply-adds of a large product
SEPARABLE_PASSES = 64.0  # per mixed number: small products and copies, in multiply-adds of a large product


def dense_cost(question: Question) -> float:
    """Multiply-adds of mixing by the whole attention matrix, and passes over it."""
    queries, keys = question.grid.shape
    return question.basis.operators.heads * queries * keys * (question.shape[0] * question.shape[1] + DENSE_PASSES)


def separable_cost(question: Question) -> float:
    """Multiply-adds of mixing along one axis after the other, and passes over what is mixed."""
    grid, images = question.grid, 1 if question.is_smoothed else question.basis.operators.heads
    done, total = 1.0, 0.0
    for axis, (queries, keys) in enumerate(zip(grid.queries, grid.keys, strict=True)):
        done *= queries
        total += done * math.prod(grid.keys[axis + 1 :]) * (keys + SEPARABLE_PASSES)
    return images * question.shape[0] * question.shape[1] * total
