"""scaled_dot_product_attention on absolute features: the same softmax without an N x N tensor.

Softmax drops what depends on the query alone, so `-alpha |k - q - c|^2` may be replaced by the inner product of
`(2 alpha (q + c), -alpha)` and `(k, |k|^2)`: claim L2e of proofs/. In the same way `-1/2 |root (k - q - c)|^2` is that
of `(P (q + c), -P_ii / 2, -P_ij)` and `(k, k_i k_j)` with `P = root^T root`.
"""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from conv2attn.layers.attention.engines.channels import project
from conv2attn.layers.attention.features import LARGEST_SCORE_ERROR, score_error
from conv2attn.layers.attention.hardness import FORMAT_NAMES
from conv2attn.layers.attention.recipe import (
    DROPS_WEIGHTS,
    POSITIONS_UNREAD,
    Evaluation,
    Question,
    score_dtype,
)
from conv2attn.theory.basis import AttentionGrid, Basis
from conv2attn.theory.basis.numbers import widest
from conv2attn.torch_internals import check_size

FUSED_WIDTH = 8  # operand widths are multiples of this: otherwise torch forms the matrix of all pairs


def decide(question: Question) -> Evaluation | str:
    """The recipe for heads whose absolute features are accurate enough, otherwise the reason why not."""
    if question.basis.operators.reads_content:
        return decide_content(question)
    # Fused dropout draws one mask per image, and `dense` draws one for all.
    if question.dropout:
        return DROPS_WEIGHTS
    if not question.basis.operators.has_features:
        return "its scores are not an inner product of few absolute features within the range of float32"
    if question.score_dtype == torch.float64 and question.device.type not in ("cpu", "meta"):
        return f"no fused attention on {question.device.type} computes in float64"
    if question.free:
        return POSITIONS_UNREAD
    direct, precision = question.facts.indirect is None, FORMAT_NAMES[question.score_dtype]
    if question.traced:
        return partial(run, direct=direct, longest=question.facts.longest_side)
    if question.facts.numbers.axes and widest(question.device, question.score_dtype) != torch.float64:
        return f"features of a full covariance are formed in float64, which {question.device.type} does not have"
    error = score_error(question.facts.numbers, max(question.grid.keys), question.score_dtype)
    if not error <= LARGEST_SCORE_ERROR:
        wrong = f"{precision} features would err by up to {error:.2g} in a score (limit {LARGEST_SCORE_ERROR:.2g})"
        return f"{wrong}, since they grow with the square of the side"
    return partial(run, direct=direct, longest=None)


def decide_content(question: Question) -> Evaluation | str:
    """The recipe for heads that read content: positions are few features, or one feature per coordinate."""
    by_axis = not question.few_features
    if question.score_dtype == torch.float64 and question.device.type not in ("cpu", "meta"):
        return f"no fused attention on {question.device.type} computes in float64"
    if question.dropout and question.device.type == "cpu":
        return DROPS_WEIGHTS
    if by_axis and not question.basis.operators.is_separable:
        return "its positions have no accurate features on this grid, and its scores are not a sum over the axes"
    return partial(run_content, direct=question.facts.indirect is None, by_axis=by_axis, dropout=question.dropout)


def run_content(basis: Basis, image: Tensor, direct: bool, by_axis: bool, dropout: float) -> Tensor:
    """The layer with one fused attention for all heads and images, whose scores read the image."""
    padded = basis.padding.pad(image)
    grid, dtype = AttentionGrid(tuple(padded.shape[2:]), basis.sites, image.device), score_dtype(image.dtype)
    queries, keys = basis.operators.content_features(grid, dtype, padded, by_axis)
    tokens = padded.flatten(2).mT[:, None].to(dtype)
    widest = max(sum(each.shape[-1] for each in keys), tokens.shape[-1])
    # Queries, keys and values get one width, as the fused kernels require.
    width = -(-widest // FUSED_WIDTH) * FUSED_WIDTH
    query_features, key_features, values = (padded_features(parts, width) for parts in (queries, keys, [tokens]))
    values = values.expand(-1, basis.operators.heads, -1, -1)
    mixed = F.scaled_dot_product_attention(query_features, key_features, values, dropout_p=dropout, scale=1.0)
    mixed = mixed[..., : image.shape[1]].permute(0, 3, 1, 2).to(image.dtype)
    return project(mixed, basis.weights, direct).unflatten(2, grid.queries)


def padded_features(parts: list[Tensor], width: int) -> Tensor:
    """The concatenated parts, zero-padded to `width`; the last axis is contiguous, as fused attention requires."""
    # Zeros on both sides add nothing to an inner product.
    missing = width - sum(each.shape[-1] for each in parts)
    zeros = [parts[0].new_zeros(()).expand(*parts[0].shape[:-1], missing)] if missing else []
    return torch.cat([*parts, *zeros], -1).contiguous()


def run(basis: Basis, image: Tensor, direct: bool, longest: int | None) -> Tensor:
    """The layer with one fused attention for all heads; accumulates in the score dtype."""
    padded = basis.padding.pad(image)
    grid, dtype = AttentionGrid(tuple(padded.shape[2:]), basis.sites, image.device), score_dtype(image.dtype)
    if longest is not None:
        # The graph also runs on larger images, on which features may be too coarse.
        for side in grid.keys:
            check_size(side <= longest)
    # Terms of the query alone cancel in the softmax (claim L2e), so scores need only as many numbers as there are
    # features.
    queries, keys = basis.operators.features(grid, dtype)
    tokens = padded.flatten(2).mT[:, None].to(dtype).contiguous()
    width = max(tokens.shape[-1], keys.shape[-1])
    queries, keys, tokens = (F.pad(t, (0, width - t.shape[-1])) for t in (queries, keys, tokens))
    batch, heads = image.shape[0], basis.operators.heads
    mixed = F.scaled_dot_product_attention(
        queries.expand(batch, -1, -1, -1),
        keys.expand(batch, heads, -1, -1),
        tokens.expand(-1, heads, -1, -1),
        scale=1.0,
    )
    mixed = mixed[..., : image.shape[1]].permute(0, 3, 1, 2).to(image.dtype)
    return project(mixed, basis.weights, direct).unflatten(2, grid.queries)
