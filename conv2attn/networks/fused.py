"""Torch's fused attentions by their formulas, whose steps a watch can observe."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

from conv2attn.torch_internals import DisableTorchFunction


def sdpa_by_formula(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The result of scaled_dot_product_attention, its softmax in float64 or float32."""
    if query.ndim == 2:  # a single image and head
        return sdpa_by_formula(query[None], key[None], value[None], attn_mask, dropout_p, is_causal, scale)[0]
    query, key, value = anew(query, key, value, enable_gqa)
    scores = scaled_products(query, key, scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    weights = torch.softmax(scores, -1) if attn_mask is None else softmax_over_keys(scores)
    return (weights @ value.to(weights.dtype)).to(value.dtype)


def anew(query: Tensor, key: Tensor, value: Tensor, grouped: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of each head, as new tensors.

    New tensors have no trail, which is not needed here: the weights are known to multiply the values.
    """
    with DisableTorchFunction():
        if grouped:
            key, value = (each.repeat_interleave(query.shape[-3] // each.shape[-3], -3) for each in (key, value))
        return query.view_as(query), key.view_as(key), value.view_as(value)


def softmax_over_keys(scores: Tensor) -> Tensor:
    """The softmax of torch's fused attentions: a query without keys attends to nothing."""
    return torch.softmax(scores, -1).masked_fill(scores.isneginf().all(-1, keepdim=True), 0)


def scaled_products(query: Tensor, key: Tensor, scale: float | None) -> Tensor:
    """The scores `scale q . k` in float64 or float32; the default scale is width^(-1/2)."""
    precise = torch.float64 if query.dtype == torch.float64 else torch.float32
    products = query.to(precise) @ key.to(precise).mT
    return products.mul_(query.shape[-1] ** -0.5 if scale is None else scale)


def flex_by_formula(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Any = None,
    block_mask: Any = None,
    scale: Any = None,
    enable_gqa: bool = False,
    **options: Any,
) -> Any:
    """The result of flex_attention, its softmax in float64 or float32; further results are flex_attention's own."""
    queries, keys, values = anew(query, key, value, enable_gqa)
    scores = scaled_products(queries, keys, scale)
    index = torch.meshgrid(*(torch.arange(n, device=scores.device) for n in scores.shape), indexing="ij")
    if score_mod is not None:
        scores = score_mod(scores, *index)
    if block_mask is not None:
        scores = scores.masked_fill(~block_mask.mask_mod(*index), -torch.inf)
    weights = softmax_over_keys(scores)
    output = (weights @ values.to(weights.dtype)).to(value.dtype)
    if not (options.get("return_lse") or options.get("return_aux")):
        return output
    with DisableTorchFunction():
        return output, flex_attention(query, key, value, score_mod, block_mask, scale, enable_gqa, **options)[1]


@contextmanager
def watched_flex(network: nn.Module) -> Iterator[None]:
    """Replaces flex_attention, which is compiled as a whole, in the code of the network's modules by its formula."""
    forwards = (getattr(type(module), "forward", None) for module in network.modules())
    spaces = {id(space): space for each in forwards if (space := getattr(each, "__globals__", None)) is not None}
    places = [(space, name) for space in spaces.values() for name, value in space.items() if is_flex(value)]
    before = [space[name] for space, name in places]
    for space, name in places:
        space[name] = flex_by_formula
    try:
        yield
    finally:
        for (space, name), value in zip(places, before, strict=True):
            space[name] = value


def is_flex(value: Any) -> bool:
    """Whether `value` is flex_attention, plain or compiled."""
    return value is flex_attention or getattr(value, "_torchdynamo_orig_callable", None) is flex_attention
