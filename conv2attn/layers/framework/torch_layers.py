"""torch.nn.MultiheadAttention as an attention convolution, and back."""

from collections.abc import Sequence
from functools import singledispatch

import torch
from torch import Tensor, nn
from torch.nn import functional

from conv2attn.arguments import check_code
from conv2attn.errors import UnsupportedError
from conv2attn.generators import generators_kept
from conv2attn.layers.framework.attention_convolution import AttentionConvolution
from conv2attn.layers.framework.mechanisms import DotProduct, Normalised


@singledispatch
def from_torch(attention: object) -> AttentionConvolution:
    """Reads an attention layer of a library as an attention convolution, with parameters of its own.

    Raises:
        UnsupportedError: no rule reads this kind of layer or one of its options (C2A101), or a part has hooks or custom
            code (C2A106).
    Examples:
        >>> import conv2attn, torch
        >>> attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        >>> type(conv2attn.from_torch(attention)).__name__
        'AttentionConvolution'
    """
    raise UnsupportedError(
        "C2A101",
        f"{type(attention).__name__} cannot be read as an attention convolution",
        "Pass a MultiheadAttention of torch.nn, or an attention layer of conv2attn.",
    )


@from_torch.register
def _(attention: nn.MultiheadAttention) -> AttentionConvolution:
    """The bias of the values passes through rows that sum to 1 into the bias of the layer (Andreoli 2019, Eq. 13).

    Queries that may read no key return that bias here, and NaN in torch. Dropout is not copied. With `kdim` and `vdim`
    keys and values come from another image than queries; if they differ, the channels of the keys precede those of the
    values.
    """
    if attention.bias_k is not None or attention.add_zero_attn:
        raise UnsupportedError(
            "C2A101",
            "MultiheadAttention with extra keys is not one convolution",
            "Build it without add_bias_kv and add_zero_attn.",
        )
    check_code(attention, "torch")
    heads = attention.num_heads
    query, key, value = (w.detach().clone().unflatten(0, (heads, -1)) for w in projections(attention))
    output = attention.out_proj.weight.detach().clone().unflatten(1, (heads, -1)).movedim(1, 0)
    if attention.in_proj_bias is None:
        mechanism, bias = DotProduct(query, key), None
    else:
        query_bias, key_bias, value_bias = attention.in_proj_bias.detach().clone().chunk(3)
        mechanism = DotProduct(query, key, query_bias.unflatten(0, (heads, -1)), key_bias.unflatten(0, (heads, -1)))
        bias = attention.out_proj.weight.detach() @ value_bias + attention.out_proj.bias.detach()
    return AttentionConvolution(mechanism.softmax(), value, output.contiguous(), bias)


def projections(attention: nn.MultiheadAttention) -> Sequence[Tensor]:
    """The weights of queries, keys and values; if widths differ, keys and values read one image with both channels."""
    if attention.in_proj_weight is not None:
        return attention.in_proj_weight.chunk(3)
    query, key, value = attention.q_proj_weight, attention.k_proj_weight, attention.v_proj_weight
    if attention.kdim == attention.vdim:
        return query, key, value
    return query, functional.pad(key, (0, attention.vdim)), functional.pad(value, (attention.kdim, 0))


@singledispatch
def to_torch(layer: object) -> nn.Module:
    """Converts a layer of the framework to one of torch.nn, with parameters of its own.

    An attention convolution becomes a MultiheadAttention that takes (batch, token, channel). The basis of a grid
    convolution becomes an nn.Conv, and one with mixtures of shifts becomes a depthwise convolution followed by a
    pointwise one.

    Raises:
        UnsupportedError: torch.nn has no such layer (C2A101, C2A110).
    Examples:
        >>> import conv2attn, torch
        >>> conv2attn.to_torch(conv2attn.as_basis(torch.nn.Conv2d(3, 4, 3)))
        Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 1))
    """
    raise UnsupportedError("C2A110", f"{type(layer).__name__} is not a layer of torch.nn", "Pass MultiheadAttention.")


@to_torch.register
def _(layer: AttentionConvolution) -> nn.MultiheadAttention:
    """A softmax of dot products whose heads tile its channels."""
    mechanism = layer.mechanism
    scored = mechanism.scored if isinstance(mechanism, Normalised) and mechanism.over == "keys" else None
    if not isinstance(scored, DotProduct) or layer.output is None or layer.given is not None or layer.of_values:
        raise UnsupportedError(
            "C2A110",
            "MultiheadAttention is only a softmax of dot products with an output",
            "Pass a mechanism of dot products with a softmax.",
        )
    heads, size, channels = layer.value.shape
    if heads * size != channels or scored.query.shape != layer.value.shape or layer.output.shape[1] != channels:
        shape = f"{heads} heads of size {size} from {channels} to {layer.output.shape[1]} channels"
        raise UnsupportedError(
            "C2A110",
            f"a MultiheadAttention has heads that tile its channels, not {shape}",
            "Pass values and outputs of heads that share the channels evenly.",
        )
    biased = not (layer.bias is None and scored.query_bias is None and scored.key_bias is None)
    with generators_kept():
        attention = nn.MultiheadAttention(channels, heads, bias=biased, batch_first=True).to(layer.value)
    with torch.no_grad():
        attention.in_proj_weight.copy_(torch.cat([w.flatten(0, 1) for w in (scored.query, scored.key, layer.value)]))
        attention.out_proj.weight.copy_(layer.output.movedim(0, 1).flatten(1))
        if biased:
            attention.in_proj_bias.zero_()
            parts = attention.in_proj_bias.unflatten(0, (3, heads, size))
            for part, bias in zip(parts, (scored.query_bias, scored.key_bias), strict=False):
                copy_or_zero(part, bias)
            copy_or_zero(attention.out_proj.bias, layer.bias)
    return attention


def copy_or_zero(target: Tensor, source: Tensor | None) -> None:
    """Fills `target` with `source`, or with zeros."""
    target.zero_() if source is None else target.copy_(source)
