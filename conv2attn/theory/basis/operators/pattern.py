"""Patterns of (query, key) pairs, and two products that are computed at these pairs only."""

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional as F

from conv2attn.errors import GeometryError


@final
@dataclass(frozen=True, eq=False)
class Pattern:
    """Pairs of a query and a key, sorted by query.

    Args:
        queries, keys: int64, (pairs).
        starts: index of the first pair of each query, then the number of pairs, int64, (queries + 1).
        shape: number of queries and number of keys.
    """

    queries: Tensor
    keys: Tensor
    starts: Tensor
    shape: tuple[int, int]

    @staticmethod
    def sorted(queries: Tensor, keys: Tensor, shape: tuple[int, int]) -> "tuple[Pattern, Tensor]":
        """The pattern of these pairs, and the permutation (pairs) that sorts them by query.

        Raises:
            GeometryError: an index is out of bounds, or the numbers of queries and keys differ (C2A122).
        """
        if queries.shape != keys.shape or queries.ndim != 1:
            raise GeometryError(
                "C2A122",
                f"queries {tuple(queries.shape)} and keys {tuple(keys.shape)} are not pairs",
                "Pass as many queries as keys, each a vector of indices.",
            )
        require_below(queries, shape[0], "query")
        require_below(keys, shape[1], "key")
        return Pattern.in_bounds(queries, keys, shape)

    @staticmethod
    def in_bounds(queries: Tensor, keys: Tensor, shape: tuple[int, int]) -> "tuple[Pattern, Tensor]":
        """`Pattern.sorted` without a check of the indices."""
        # int32 if it is wide enough: sorting half the bytes takes about two thirds of the time.
        narrow = queries.int() if shape[0] <= torch.iinfo(torch.int32).max else queries
        ordered, order = torch.sort(narrow, stable=True)
        starts = torch.searchsorted(ordered, torch.arange(shape[0] + 1, dtype=ordered.dtype, device=ordered.device))
        return Pattern(ordered.long(), keys.index_select(0, order), starts, shape), order

    @cached_property
    def transposed(self) -> "tuple[Pattern, Tensor]":
        """The pattern with queries and keys exchanged, and the permutation that sorts these pairs by key."""
        # The gradient of a weighted sum sums over the queries of a key. Cached, since every backward pass needs it.
        return Pattern.in_bounds(self.keys, self.queries, (self.shape[1], self.shape[0]))


def require_below(index: Tensor, count: int, name: str) -> None:
    """Checks that every index is below `count`. Traced programs are not checked, as their tensors hold no numbers.

    Raises:
        GeometryError: an index is negative, or not below `count` (C2A122).
    """
    if torch.compiler.is_compiling() or not index.numel():
        return
    least, most = int(index.min()), int(index.max())
    if least < 0 or most >= count:
        reason = f"an edge has the {name} {least if least < 0 else most}, which is not from 0 to {count - 1}"
        raise GeometryError("C2A122", reason, "Pass indices in this range.")


def weighted_sum(pattern: Pattern, weights: Tensor, tokens: Tensor) -> Tensor:
    """`y_q = sum of weights_e tokens_k over the pairs e = (q, k)`: (queries, channels) from tokens (keys, channels)."""
    result: Tensor = WeightedSum.apply(weights.to(tokens), tokens, pattern)
    return result


def inner_products(pattern: Pattern, asking: Tensor, answering: Tensor) -> Tensor:
    """`<asking_q, answering_k>` of each pair (q, k): (pairs), from vectors (queries, d) and (keys, d)."""
    result: Tensor = InnerProducts.apply(asking, answering, pattern)
    return result


class WeightedSum(torch.autograd.Function):
    """A sparse matrix times a dense one. The gradients are such products too, so it is twice differentiable."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, tokens: Tensor, pattern: Pattern) -> Tensor:
        ctx.save_for_backward(weights, tokens if ctx.needs_input_grad[0] else None)
        ctx.pattern = pattern
        # With two or more threads, torch 2.13 refuses tokens of length zero, as for an empty batch.
        if not (pattern.keys.numel() and tokens.numel()):
            return tokens.new_zeros(pattern.shape[0], tokens.shape[1])
        # `embedding_bag` adds up rows in place. A gather and a sum would form a (pairs, channels) tensor first.
        return F.embedding_bag(
            pattern.keys,
            tokens.contiguous(),
            pattern.starts,
            mode="sum",
            per_sample_weights=weights.contiguous(),
            include_last_offset=True,
        )

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        weights, tokens = ctx.saved_tensors
        to_weights = inner_products(ctx.pattern, gradient, tokens) if ctx.needs_input_grad[0] else None
        to_tokens = None
        if ctx.needs_input_grad[1]:
            back, order = ctx.pattern.transposed
            to_tokens = weighted_sum(back, weights.index_select(0, order), gradient)
        return to_weights, to_tokens, None


class InnerProducts(torch.autograd.Function):
    """A dense matrix times a dense one, at the pairs of a pattern only. Its gradients are weighted sums."""

    @staticmethod
    def forward(ctx: Any, asking: Tensor, answering: Tensor, pattern: Pattern) -> Tensor:
        ctx.save_for_backward(asking, answering)
        ctx.pattern = pattern
        if not pattern.keys.numel():
            return asking.new_zeros(0)
        # `sampled_addmm` has no half types, so they are computed in float32. It adds the products to a sparse matrix,
        # which therefore holds zeros.
        kind = torch.promote_types(asking.dtype, torch.float32)
        zeros = sparse_zeros(pattern, kind)
        products = torch.sparse.sampled_addmm(zeros, asking.to(kind).contiguous(), answering.to(kind).contiguous().mT)
        return products.values().to(asking.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        asking, answering = ctx.saved_tensors
        to_asking = weighted_sum(ctx.pattern, gradient, answering) if ctx.needs_input_grad[0] else None
        to_answering = None
        if ctx.needs_input_grad[1]:
            back, order = ctx.pattern.transposed
            to_answering = weighted_sum(back, gradient.index_select(0, order), asking)
        return to_asking, to_answering, None


def sparse_zeros(pattern: Pattern, dtype: torch.dtype) -> Tensor:
    """Zeros at the pairs of a pattern, in torch's CSR layout."""
    # torch warns once per process that this layout is in beta. The invariants hold by construction, and checking them
    # would synchronise an accelerator at every product.
    zeros = torch.zeros(len(pattern.keys), dtype=dtype, device=pattern.keys.device)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(pattern.starts, pattern.keys, zeros, pattern.shape, check_invariants=False)
