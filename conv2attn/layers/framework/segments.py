"""Between tokens and pairs of tokens: numbers of a token at each of its pairs, sums and softmaxes over those pairs."""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from conv2attn.theory.basis.operators.pattern import Pattern

Side = Literal["queries", "keys"]


def spread(pattern: Pattern, tokens: Tensor, side: Side) -> Tensor:
    """The row of its query, or of its key, for each pair: (pairs, width) of tokens (queries or keys, width)."""
    result: Tensor = Spread.apply(tokens, pattern, side)
    return result


def collect(pattern: Pattern, numbers: Tensor, side: Side) -> Tensor:
    """The sum over the pairs of each query, or of each key: (queries or keys, width) of numbers (pairs, width)."""
    result: Tensor = Collect.apply(numbers, pattern, side)
    return result


def softmax_over(pattern: Pattern, scores: Tensor, side: Side) -> Tensor:
    """The softmax of scores (pairs, width) over the pairs of each query, or of each key.

    A token all of whose scores are -inf gets zeros.
    """
    index = pattern.queries if side == "queries" else pattern.keys
    count = pattern.shape[0] if side == "queries" else pattern.shape[1]
    # The largest score keeps exp within range. A softmax does not change with it, so it has no gradient.
    largest = scores.new_full((count, scores.shape[1]), -torch.inf)
    largest = largest.scatter_reduce(0, index[:, None].expand_as(scores), scores.detach(), "amax")
    grown = (scores - spread(pattern, largest.masked_fill(largest == -torch.inf, 0), side)).exp()
    total = collect(pattern, grown, side)
    return grown * spread(pattern, 1 / total.masked_fill(total == 0, 1), side)


class Spread(torch.autograd.Function):
    """Reads the tokens of pairs; its adjoint is `Collect`."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, pattern: Pattern, side: Side) -> Tensor:
        ctx.pattern, ctx.side = pattern, side
        return tokens.index_select(0, pattern.queries if side == "queries" else pattern.keys)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return collect(ctx.pattern, gradient, ctx.side), None, None


class Collect(torch.autograd.Function):
    """Adds up pairs at their tokens; its adjoint is `Spread`."""

    @staticmethod
    def forward(ctx: Any, numbers: Tensor, pattern: Pattern, side: Side) -> Tensor:
        ctx.pattern, ctx.side = pattern, side
        if side == "queries":
            order, starts = torch.arange(len(pattern.queries), device=numbers.device), pattern.starts
        else:
            back, order = pattern.transposed
            starts = back.starts
        if not len(numbers):
            return numbers.new_zeros(len(starts) - 1, numbers.shape[1])
        return F.embedding_bag(order, numbers.contiguous(), starts, mode="sum", include_last_offset=True)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return spread(ctx.pattern, gradient, ctx.side), None, None
