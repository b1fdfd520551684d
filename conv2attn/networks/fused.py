"""The softmax of torch's fused attentions, (batch, heads, queries, keys)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

from conv2attn.torch_internals import DisableTorchFunction


def attention_of_sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    products: Tensor | None = None,
) -> Tensor:
    """The softmax inside scaled_dot_product_attention, in float64 or float32; of other `products` where there are."""
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = scaled_products(query, key, scale) if products is None else products * scale
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return torch.softmax(scores, -1) if attn_mask is None else softmax_over_keys(scores)


def softmax_over_keys(scores: Tensor) -> Tensor:
    """The softmax as torch's fused attentions have it: a query with no key attends to nothing."""
    return torch.softmax(scores, -1).masked_fill(scores.isneginf().all(-1, keepdim=True), 0)


def scaled_products(query: Tensor, key: Tensor, scale: float | None) -> Tensor:
    """The scores `scale q . k` in float64 or float32; the scale is the width to the power of -1/2 if there is none."""
    precise = torch.float64 if query.dtype == torch.float64 else torch.float32
    products = query.to(precise) @ key.to(precise).mT
    return products.mul_(query.shape[-1] ** -0.5 if scale is None else scale)


def attention_of_flex(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Any = None,
    block_mask: Any = None,
    scale: Any = None,
    enable_gqa: bool = False,
    **_: Any,
) -> Tensor:
    """The softmax inside flex_attention, in float64 or float32."""
    if enable_gqa:
        key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    scores = scaled_products(query, key, scale)
    index = torch.meshgrid(*(torch.arange(n, device=scores.device) for n in scores.shape), indexing="ij")
    if score_mod is not None:
        scores = score_mod(scores, *index)
    if block_mask is not None:
        scores = scores.masked_fill(~block_mask.mask_mod(*index), -torch.inf)
    return softmax_over_keys(scores)


@contextmanager
def watched_flex(network: nn.Module, see: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]) -> Iterator[None]:
    """Replaces flex_attention in the code of the network's modules by one that uses the attention that `see` returns.

    `see` is passed the queries, the keys and the values of each head, and the softmax.

    flex_attention is compiled as a whole, so that its softmax cannot be intercepted.
    """

    def watched(query: Tensor, key: Tensor, value: Tensor, *arguments: Any, **options: Any) -> Any:
        with DisableTorchFunction():
            attention = attention_of_flex(query, key, value, *arguments, **options)
            repeats = query.shape[1] // value.shape[1]
            key, values = (each.repeat_interleave(repeats, 1) for each in (key, value))
            used = see(query, key, values, attention)
            if used is attention and (options.get("return_lse") or options.get("return_aux")):
                return flex_attention(query, key[:, ::repeats], value, *arguments, **options)
            return used.to(value.dtype) @ values

    forwards = (getattr(type(module), "forward", None) for module in network.modules())
    spaces = {id(space): space for each in forwards if (space := getattr(each, "__globals__", None)) is not None}
    places = [(space, name) for space in spaces.values() for name, value in space.items() if is_flex(value)]
    before = [space[name] for space, name in places]
    for space, name in places:
        space[name] = watched
    try:
        yield
    finally:
        for (space, name), value in zip(places, before, strict=True):
            space[name] = value


def is_flex(value: Any) -> bool:
    """Whether `value` is flex_attention, plain or compiled."""
    return value is flex_attention or getattr(value, "_torchdynamo_orig_callable", None) is flex_attention
