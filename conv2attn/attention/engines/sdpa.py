"""scaled_dot_product_attention on absolute features: the same softmax without an N x N tensor.

Softmax drops what depends on the query alone, so `-alpha |k - q - c|^2` may be replaced by the inner product of
`(2 alpha (q + c), -alpha)` and `(k, |k|^2)`: claim L2e of proofs/.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from conv2attn.attention.call import Call
from conv2attn.attention.displacements import unravel
from conv2attn.attention.encodings import QuadraticEncoding
from conv2attn.attention.engines.channels import project
from conv2attn.attention.hardness import FORMATS
from conv2attn.basis import AttentionGrid
from conv2attn.bounds import absolute_score_error, exact_absolute_features

LARGEST_SCORE_ERROR = 2.0**-10  # chosen: every weight then has TF32's relative accuracy or better


def prepare(call: Call) -> Callable[[], Tensor] | str:
    """Ready to run for a quadratic encoding whose absolute features are accurate enough, else why not."""
    if call.layer.has_content:
        return "its attention depends on the content"
    encoding = call.layer.encoding
    if not isinstance(encoding, QuadraticEncoding):
        return "its scores are no inner product of few absolute features within the range of float32"
    if call.score_dtype == torch.float64 and call.image.device.type != "cpu":
        return f"no fused attention on {call.image.device.type} computes in float64"
    precision = FORMATS[call.score_dtype]
    error = score_error(encoding, call.grid, precision)
    if not error <= LARGEST_SCORE_ERROR:
        return f"{precision} features would be wrong by up to {error:.2g} in a score (limit {LARGEST_SCORE_ERROR:.2g})"
    return lambda: run(call, encoding)


def score_error(encoding: QuadraticEncoding, grid: AttentionGrid, precision: str) -> float:
    """Upper bound on the error of a score; 0 where centres are integers and every sum fits the significand."""
    centers, alphas = encoding.center.detach(), encoding.alpha.tolist()
    reach = max(grid.keys) / 2 + centers.abs().max().item()
    if not math.isfinite(reach) or not all(map(math.isfinite, alphas)):
        return math.inf
    whole = torch.equal(centers, centers.round())
    if whole and all(exact_absolute_features(a, math.ceil(reach), encoding.dimensions, precision) for a in alphas):
        return 0.0
    return absolute_score_error(max(map(abs, alphas)), reach, encoding.dimensions, precision)


def run(call: Call, encoding: QuadraticEncoding) -> Tensor:
    """The layer with one fused attention for all heads; accumulates in the score dtype."""
    queries, keys = features(encoding, call.grid, call.score_dtype)
    tokens = call.padded.flatten(2).mT[:, None].to(call.score_dtype).contiguous()
    width = max(tokens.shape[-1], keys.shape[-1])
    queries, keys, tokens = (F.pad(t, (0, width - t.shape[-1])) for t in (queries, keys, tokens))
    batch, heads = call.image.shape[0], encoding.heads
    mixed = F.scaled_dot_product_attention(
        queries.expand(batch, -1, -1, -1),
        keys.expand(batch, heads, -1, -1),
        tokens.expand(-1, heads, -1, -1),
        scale=1.0,
    )
    mixed = mixed[..., : call.image.shape[1]].permute(0, 3, 1, 2).to(call.image.dtype)
    return project(mixed, call.weights).unflatten(2, call.grid.queries)


def features(encoding: QuadraticEncoding, grid: AttentionGrid, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Features of queries (1, heads, queries, axes + 1) and keys (1, 1, keys, axes + 1), coordinates centred."""
    device = encoding.center.device
    middle = torch.tensor([(side - 1) // 2 for side in grid.keys], device=device)
    key = torch.cartesian_prod(*[torch.arange(s, device=device) for s in grid.keys]).reshape(-1, len(grid.keys))
    key = (key - middle).to(dtype)
    rows = unravel(torch.arange(grid.shape[0]), grid.queries)
    site = torch.stack([grid.site(a)[index] for a, index in enumerate(rows)], -1).to(device)
    alpha = encoding.alpha.to(dtype)[:, None, None]
    target = (site - middle).to(dtype)[None] + encoding.center.to(dtype)[:, None]
    asking = torch.cat([2 * alpha * target, -alpha.expand(-1, target.shape[1], 1)], -1)
    return asking[None], torch.cat([key, key.square().sum(-1, keepdim=True)], -1)[None, None]
