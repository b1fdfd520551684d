"""Fused attention whose gradient makes no subnormal numbers: torch's forward pass, and a backward pass in tiles.

Torch's own backward pass keeps every weight above 0. Processors that compute slowly with subnormal numbers took up to 9
times as long for a step. Here a weight below `tiny MOST_KEYS` of the largest of its query is 0, as in `cut_softmax`.
"""

import math
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from conv2attn.layers.attention.tracing import is_transient, readable
from conv2attn.theory.basis.operators import MOST_KEYS, cut_depth

TILE_NUMBERS = 2**19  # measured: scores at once; 2^18 and 2^20 took 1.03 and 1.3 times as long
SAMPLE = 8  # chosen: queries of each head, in the first image, by which the gradient is chosen
FEW = 2.0**-8  # measured: where more weights are subnormal, this gradient was never slower than torch's own


def fused_attention(queries: Tensor, keys: Tensor, values: Tensor, dropout: float) -> Tensor:
    """softmax(queries keys^T) values for (batch, heads, tokens, width), by torch's fused attention."""
    if not dropout and has_small_weights(queries, keys, values):
        return CutGradient.apply(queries, keys, values)
    return F.scaled_dot_product_attention(queries, keys, values, dropout_p=dropout, scale=1.0)


def has_small_weights(queries: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Whether a backward pass on this CPU would meet more than a few weights that are subnormal, by a sample.

    False where values cannot be read, and under transforms of functions, which follow torch's own operator.
    """
    some = queries.numel() > 0 and keys.numel() > 0
    trained = some and torch.is_grad_enabled() and any(e.requires_grad for e in (queries, keys, values))
    if not (trained and readable(queries)) or is_transient(queries):
        return False
    sampled = queries[0].detach()[:, :: -(-queries.shape[-2] // SAMPLE), :]
    scores, format_ = sampled @ keys[0].detach().mT, torch.finfo(queries.dtype)
    middle, half = -math.log(format_.tiny) - math.log(format_.eps) / 2, -math.log(format_.eps) / 2
    # A weight exp(-below) is subnormal for `below` from -log(tiny) to -log(tiny eps): that interval's middle and half.
    below = scores.amax(-1, keepdim=True) - scores
    small = below.sub_(middle).abs_() < half
    return bool(small.count_nonzero() > FEW * small.numel())


class CutGradient(torch.autograd.Function):
    """Torch's fused attention with a gradient in which a weight is 0 or at least `tiny MOST_KEYS` of the largest.

    What is left out of the softmax of a query weighs at most `tiny MOST_KEYS` per key, 2^-102 in float32. So the
    gradient of a query q is off by at most keys 2^-102 |g| max |v - y| max |k|, with g the gradient of its output y and
    |.| the norms of rows: of values 2^100 times as large as what is read, it loses the part that torch's own keeps.
    """

    @staticmethod
    def forward(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Torch's own."""
        return F.scaled_dot_product_attention(queries, keys, values, scale=1.0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Keeps what torch's own keeps but for the sums of the softmax."""
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """The gradients, tile after tile of queries: no tensor has a number for each pair of tokens."""
        queries, keys, values, output = ctx.saved_tensors
        asking, asked = queries.new_zeros(queries.shape), keys.new_zeros(keys.shape)
        mixed = values.new_zeros(values.shape) if ctx.needs_input_grad[2] else None
        if not (output.numel() and keys.shape[-2]):
            return asking, asked, mixed
        scale = towards_one(gradients[0])
        gradient = gradients[0] * scale
        rows = max(1, TILE_NUMBERS // keys.shape[-2])
        for head in product(*map(range, queries.shape[:-2])):
            read = queries[head], keys[head], values[head], output[head], gradient[head]
            into = asking[head], asked[head], None if mixed is None else mixed[head]
            with torch.autocast("cpu", enabled=False):  # which the caller may have enabled around the backward pass
                for start in range(0, queries.shape[-2], rows):
                    add_gradients(*into, slice(start, start + rows), *read)
        return asking.div_(scale), asked.div_(scale), None if mixed is None else mixed.div_(scale)


def add_gradients(
    of_queries: Tensor,
    of_keys: Tensor,
    of_values: Tensor | None,
    rows: slice,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    output: Tensor,
    gradient: Tensor,
) -> None:
    """Writes the gradients of some queries of a head, and adds what these contribute to those of keys and values.

    The scores are clamped before exp, which is slow itself where its result is subnormal or 0.
    """
    weights = queries[rows] @ keys.mT
    weights -= weights.amax(-1, keepdim=True)
    weights = weights.clamp_min_(-cut_depth(weights.dtype) - 1).exp_()
    weights = torch.threshold_(weights, torch.finfo(weights.dtype).tiny * MOST_KEYS, 0.0)
    share = gradient[rows] / weights.sum(-1, keepdim=True)
    if of_values is not None:
        of_values.addmm_(weights.mT, share)
    # d y / d score_k is w_k (v_k - y) for a softmax w: the gradient of a score is w_k (g.v_k - g.y), `share` is g over
    # the sum of the weights that are left, and y is the output of the forward pass.
    weights *= (share @ values.mT).sub_((share * output[rows]).sum(-1, keepdim=True))
    torch.mm(weights, keys, out=of_queries[rows])
    of_keys.addmm_(weights.mT, queries[rows])


def towards_one(gradient: Tensor) -> float:
    """The power of two that brings the largest number to about 1: products with small weights are then normal."""
    largest = gradient.abs().max().item()
    return 2.0 ** -max(-100, math.frexp(largest)[1]) if 0 < largest < math.inf else 1.0
