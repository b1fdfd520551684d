"""The (query, key) pairs that attention scores: all of them, or those of a graph."""

import math
from dataclasses import dataclass
from typing import Any, Literal, final

import torch
from torch import Tensor
from torch.nn import functional as F

from conv2attn.theory.basis import Dense, Pattern, Sides, Sparse, inner_products, weighted_sum
from conv2attn.torch_internals import disable_dynamo

Over = Literal["keys", "queries", "heads"]


@final
@dataclass(frozen=True, eq=False)
class AllPairs:
    """All pairs, in scores (batch, heads, queries, keys).

    Args:
        sides: sides of the grid of the keys.
        queries: sides of the grid of the queries.
        mask: in the log domain, added to scores; broadcasts to (batch, heads, queries, keys). None for no mask.
    """

    sides: Sides
    queries: Sides
    mask: Tensor | None = None

    def of_keys(self, numbers: Tensor) -> Tensor:
        """One number per key, (batch, heads, keys), copied to the pairs."""
        return numbers[..., None, :].expand(-1, -1, math.prod(self.queries), -1)

    def of_queries(self, numbers: Tensor) -> Tensor:
        """One number per query, (batch, heads, queries), copied to the pairs."""
        return numbers[..., :, None].expand(-1, -1, -1, math.prod(self.sides))

    def products(self, query_vectors: Tensor, key_vectors: Tensor) -> Tensor:
        """Inner products of vectors (batch, heads, queries, d) and (batch, heads, keys, d)."""
        return query_vectors @ key_vectors.mT

    def softmax(self, scores: Tensor, over: Over) -> Tensor:
        """The softmax of masked scores; zeros if all are masked."""
        axis = {"keys": -1, "queries": -2, "heads": 1}[over]
        if self.mask is None:
            return torch.softmax(scores, axis)
        closed = (self.mask == -torch.inf).expand_as(scores)
        scores = torch.where(closed, -torch.inf, scores + self.mask.to(scores))
        nothing = closed.all(axis, keepdim=True)
        return torch.softmax(scores.masked_fill(nothing, 0), axis).masked_fill(nothing, 0)

    def open(self, weights: Tensor) -> Tensor:
        """`weights` with zeros at masked pairs."""
        return weights if self.mask is None else weights.masked_fill(self.mask == -torch.inf, 0)

    def mix(self, weights: Tensor, values: Tensor) -> Tensor:
        """`sum_k weights[q, k] values[k]` of values (batch, heads, keys, d); keys that no query reads may be NaN."""
        if self.mask is not None:
            unread = (self.mask == -torch.inf).expand_as(weights).all(-2)
            values = values.masked_fill(unread[..., None], 0)
        return weights @ values

    def operator(self, weights: Tensor) -> Dense:
        """The operators of weights (heads, queries, keys)."""
        return Dense(weights, self.queries)


@final
@dataclass(frozen=True, eq=False)
class Edges:
    """The pairs of a graph, in scores (batch, heads, pairs): no tensor of queries x keys is formed."""

    pattern: Pattern
    queries: Sides

    def of_keys(self, numbers: Tensor) -> Tensor:
        """One number per key, (batch, heads, keys), copied to the pairs."""
        return as_rows(spread(self.pattern, as_columns(numbers), "keys"), numbers.shape[:-1])

    def of_queries(self, numbers: Tensor) -> Tensor:
        """One number per query, (batch, heads, queries), copied to the pairs."""
        return as_rows(spread(self.pattern, as_columns(numbers), "queries"), numbers.shape[:-1])

    @disable_dynamo  # dynamo cannot trace torch's sparse products
    def products(self, query_vectors: Tensor, key_vectors: Tensor) -> Tensor:
        """Inner products of vectors (batch, heads, queries, d) and (batch, heads, keys, d)."""
        lead = torch.broadcast_shapes(query_vectors.shape[:2], key_vectors.shape[:2])
        flat = (x.expand(*lead, -1, -1).flatten(0, 1) for x in (query_vectors, key_vectors))
        products = [inner_products(self.pattern, a, k) for a, k in zip(*flat, strict=True)]
        return stack_or_empty(products, query_vectors, (len(self.pattern.keys),)).unflatten(0, lead)

    def softmax(self, scores: Tensor, over: Over) -> Tensor:
        """The softmax of scores over the keys of each query, the queries of each key, or the heads."""
        if over == "heads":
            return torch.softmax(scores, 1)
        side: Literal["queries", "keys"] = "queries" if over == "keys" else "keys"
        return as_rows(softmax_over(self.pattern, as_columns(scores), side), scores.shape[:-1])

    def open(self, weights: Tensor) -> Tensor:
        """`weights`: there are no masked pairs among those of the graph."""
        return weights

    def mix(self, weights: Tensor, values: Tensor) -> Tensor:
        """`sum over the pairs (q, k) of weights[e] values[k]` of values (batch, heads, keys, d)."""
        lead = torch.broadcast_shapes(weights.shape[:2], values.shape[:2])
        flat = weights.expand(*lead, -1).flatten(0, 1).contiguous(), values.expand(*lead, -1, -1).flatten(0, 1)
        mixes = [weighted_sum(self.pattern, w, v) for w, v in zip(*flat, strict=True)]
        return stack_or_empty(mixes, values, (self.pattern.shape[0], values.shape[-1])).unflatten(0, lead)

    def operator(self, weights: Tensor) -> Sparse:
        """The operators of weights (heads, pairs)."""
        return Sparse(self.pattern, weights, self.queries)


def stack_or_empty(parts: list[Tensor], like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`parts` as one tensor; (0, *shape) if the batch is empty."""
    return torch.stack(parts) if parts else like.new_zeros(0, *shape)


def as_columns(rows: Tensor) -> Tensor:
    """(batch, heads, tokens) as a matrix (tokens, batch * heads)."""
    return rows.flatten(0, 1).mT


def as_rows(columns: Tensor, lead: torch.Size) -> Tensor:
    """The inverse of `as_columns`."""
    return columns.mT.unflatten(0, lead)


Side = Literal["queries", "keys"]


def spread(pattern: Pattern, tokens: Tensor, side: Side) -> Tensor:
    """For each pair, the row of its query or key: (pairs, width) from tokens (queries or keys, width)."""
    result: Tensor = Spread.apply(tokens, pattern, side)
    return result


def collect(pattern: Pattern, numbers: Tensor, side: Side) -> Tensor:
    """For each query or key, the sum over its pairs: (queries or keys, width) from numbers (pairs, width)."""
    result: Tensor = Collect.apply(numbers, pattern, side)
    return result


def softmax_over(pattern: Pattern, scores: Tensor, side: Side) -> Tensor:
    """The softmax of scores (pairs, width) over the pairs of each query, or of each key.

    A token all of whose scores are -inf gets zeros.
    """
    index = pattern.queries if side == "queries" else pattern.keys
    count = pattern.shape[0] if side == "queries" else pattern.shape[1]
    # The largest score keeps exp within range. The softmax does not depend on it, so it has no gradient.
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
        # With two or more threads, torch 2.13 refuses rows of length zero, as for an empty batch.
        if not numbers.numel():
            return numbers.new_zeros(len(starts) - 1, numbers.shape[1])
        return F.embedding_bag(order, numbers.contiguous(), starts, mode="sum", include_last_offset=True)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return spread(ctx.pattern, gradient, ctx.side), None, None
