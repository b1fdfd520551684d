"""The weights of torch's fused attentions, computed in the open: (batch, heads, queries, keys)."""

from typing import Any

import torch
from torch import Tensor


def attention_of_sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The softmax inside scaled_dot_product_attention, in float64 or float32."""
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    precise = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = query.to(precise) @ key.to(precise).mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return torch.softmax(scores, -1)


def attention_of_flex(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Any = None,
    block_mask: Any = None,
    scale: Any = None,
    **_: Any,
) -> Tensor:
    """The softmax inside flex_attention."""
    batch, heads, queries, _width = query.shape
    scores = query.float() @ key.float().mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    index = torch.meshgrid(*(torch.arange(n) for n in (batch, heads, queries, key.shape[-2])), indexing="ij")
    if score_mod is not None:
        scores = score_mod(scores, *index)
    if block_mask is not None:
        scores = scores.masked_fill(~block_mask.mask_mod(*index), -torch.inf)
    return torch.softmax(scores, -1)
