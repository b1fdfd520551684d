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
from conv2attn.attention.encodings import QuadraticEncoding, unravel
from conv2attn.attention.engines.channels import project
from conv2attn.attention.hardness import FORMATS, on_pixels
from conv2attn.basis import AttentionGrid
from conv2attn.bounds import absolute_score_error, exact_absolute_features

LARGEST_SCORE_ERROR = 2.0**-10  # chosen: every weight then has TF32's relative accuracy or better


def prepare(call: Call) -> Callable[[], Tensor] | str:
    """Ready to run for a quadratic encoding whose absolute features are accurate enough in float32, else why not."""
    if call.layer.has_content:
        return "its attention depends on the content"
    encoding = call.layer.encoding
    if not isinstance(encoding, QuadraticEncoding):
        return "its scores are no inner product of few absolute features within the range of float32"
    alphas, centers = encoding.alpha.tolist(), encoding.center.tolist()
    if not all(0 < alpha < math.inf for alpha in alphas):
        return f"alpha = {min(alphas):g} is not positive and finite"
    reach = math.ceil(max(call.grid.keys) / 2 + max(abs(x) for center in centers for x in center))
    kind, axes, between = FORMATS[call.score_dtype], encoding.dimensions, not on_pixels(centers)
    if between or not all(exact_absolute_features(alpha, reach, axes, kind) for alpha in set(alphas)):
        error = absolute_score_error(max(alphas), reach, axes, kind)
        if not error <= LARGEST_SCORE_ERROR:
            return f"{kind} features would be wrong by up to {error:.2g} in a score (limit {LARGEST_SCORE_ERROR:.2g})"
    return lambda: run(call, encoding)


def run(call: Call, encoding: QuadraticEncoding) -> Tensor:
    """The layer with one fused attention for all heads, in the score dtype."""
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
