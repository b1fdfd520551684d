"""ConViT's gated positional self-attention (timm's `GPSA`) for quadratic heads, and back."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from conv2attn.arguments import check_code, check_has_numbers, check_kind
from conv2attn.errors import GeometryError, UnsupportedError, whole_number
from conv2attn.extras import optional
from conv2attn.generators import generators_kept
from conv2attn.layers.attention.encoding import Encoding
from conv2attn.layers.attention.features import check_scores
from conv2attn.layers.attention.layer import MultiHeadSelfAttention
from conv2attn.theory.basis import Padding, Sites, Weights, isotropic

CLOSED = 100.0
"""A gate whose sigmoid is exactly 1 in float32 and float64: nothing of the content's attention is left."""


class GatedAttention(nn.Module):
    """timm's `GPSA` on the padded image, its gates closed to content, and its outputs at the queries.

    Its scores are linear in `(x, y, x^2 + y^2)` of `key - query`, so `-alpha |delta - c|^2` is
    `(2 alpha c_x, 2 alpha c_y, -alpha)`.

    Args:
        attention: the GPSA; channels beyond those of the layer are zeros.
        padding, sites: geometry of the layer that it was made from.
        d_out: output channels.
    """

    def __init__(self, attention: Any, padding: Padding, sites: Sites, d_out: int):
        super().__init__()
        self.attention, self.padding, self.sites, self.d_out = attention, padding, sites, d_out

    def forward(self, image: Tensor) -> Tensor:
        """(batch, d_in, rows, columns) -> (batch, d_out, *queries).

        Raises:
            GeometryError: the padded image is not square, and ConViT counts places on squares only (C2A121).
        """
        padded = self.padding.pad(image)
        sides = tuple(padded.shape[2:])
        if sides[0] != sides[1]:
            reason = f"ConViT's attention takes square grids, and the padded image is {sides[0]}x{sides[1]}"
            raise GeometryError("C2A121", reason, "Pass a square image.")
        tokens = pad(padded.flatten(2).mT, (0, self.attention.dim - image.shape[1]))
        rows = self.attention(tokens)[..., : self.d_out].mT.unflatten(2, sides)
        for axis, count in enumerate(self.sites.count(sides)):
            places = self.sites.before[axis] + self.sites.stride[axis] * torch.arange(count, device=image.device)
            rows = rows.index_select(axis + 2, places)
        return rows


def gpsa() -> Any:
    """timm's class.

    Raises:
        UsageError: timm cannot be imported (C2A003).
    """
    return optional("timm.models.convit", "GPSA").GPSA


def to_gpsa(layer: MultiHeadSelfAttention, side: int = 64, width: int | None = None) -> GatedAttention:
    """Computes the map of `layer` by timm's `GPSA`, for square padded images with sides up to `side`.

    Args:
        layer: quadratic heads on two axes, without content or groups.
        side: the longest side of the padded image.
        width: of a head; by default as wide as needed. ConViT's own is d_in / heads.
    Raises:
        UnsupportedError: the heads are of another kind, a query stands outside the image, or a head has to carry more
            channels than `width`: it has to be at least d_head, d_in / heads and d_out / heads (C2A101).
        EngineError: positions are not accurate enough in this dtype on such grids (C2A201).
        UsageError: timm cannot be imported (C2A003).
    Examples:
        >>> import conv2attn, torch
        >>> layer = conv2attn.convert(torch.nn.Conv2d(4, 4, 3, padding=1), alpha=3)
        >>> gpsa = conv2attn.to_gpsa(layer, side=8)  # needs timm  # doctest: +SKIP
    """
    check_kind(layer, "layer", MultiHeadSelfAttention, "Convert the convolution first: conv2attn.convert(layer).")
    check_has_numbers(layer, "layer")
    side = whole_number(side, "side")
    operators, weights, heads = isotropic(layer.operators()), layer.weights, layer.heads
    if operators is None or layer.groups > 1 or layer.dimensions != 2:
        reason = f"{layer.name}: only quadratic heads on two axes without groups are ConViT's attention"
        raise UnsupportedError(
            "C2A101", reason, "Pass a layer of two axes and one group, converted with encoding='quadratic'."
        )
    if min((*layer.sites.before, *layer.sites.after)) < 0:
        raise UnsupportedError(
            "C2A101",
            f"{layer.name}: ConViT asks at pixels, and a query stands outside the image",
            "Pass a layer whose padding keeps the sides, or adds to them.",
        )
    needed = max(layer.d_head, math.ceil(layer.d_in / heads), math.ceil(layer.d_out / heads))
    if width is not None and width < needed:
        reason = f"{layer.name}: a head of width {width} cannot carry d_head={layer.d_head} of {layer.d_in} channels"
        raise UnsupportedError("C2A101", reason, f"Pass a width of at least {needed}.")
    dtype, width = layer.like.dtype, width or needed
    check_scores(layer.name, operators.numbers(), 2 * side, dtype)
    with generators_kept():
        attention = gpsa()(heads * width, heads, qkv_bias=True).to(layer.like)
    reads, writes = weights.explicit_factors()
    value = layer.like.new_zeros(heads, width, heads * width)
    output = layer.like.new_zeros(heads * width, heads, width)
    value[:, : layer.d_head, : layer.d_in] = reads
    output[: layer.d_out, :, : layer.d_head] = writes.transpose(0, 1)
    alpha, center = operators.alpha.detach().to(dtype), operators.center.detach().to(dtype)
    with torch.no_grad():
        for part in (attention.qk, attention.v, attention.proj, attention.pos_proj):
            part.weight.zero_()
            part.bias.zero_()
        attention.v.weight.copy_(value.flatten(0, 1))
        attention.proj.weight.copy_(output.flatten(1))
        attention.pos_proj.weight.copy_(torch.cat([2 * alpha[:, None] * center.flip(1), -alpha[:, None]], 1))
        attention.gating_param.fill_(CLOSED)
        if layer.bias is not None:
            attention.proj.bias[: layer.d_out] = layer.bias
    return GatedAttention(attention, layer.image_padding, layer.sites, layer.d_out)


def from_gpsa(attention: Any) -> MultiHeadSelfAttention:
    """The layer of a `GPSA` that attends by position alone, on square images of its channels.

    Raises:
        UnsupportedError: it is no `GPSA`, a gate lets content in, or the scores of a head do not fall with the distance
            (C2A101), or a part of it has hooks or code of its own (C2A106).
    Examples:
        >>> import conv2attn, torch
        >>> layer = conv2attn.convert(torch.nn.Conv2d(4, 4, 3, padding=1), alpha=3)
        >>> gpsa = conv2attn.to_gpsa(layer, side=8).attention  # needs timm  # doctest: +SKIP
        >>> conv2attn.from_gpsa(gpsa).heads  # doctest: +SKIP
        9
    """
    if not any(each.__name__ == "GPSA" for each in type(attention).__mro__):
        reason = f"an object of class {type(attention).__name__} is not timm's GPSA"
        raise UnsupportedError("C2A101", reason, "Of what to_gpsa made, pass its .attention.")
    home = next(each.__module__ for each in type(attention).__mro__ if each.__name__ == "GPSA")
    check_code(attention, "torch", home.partition(".")[0])
    gates, weight = torch.sigmoid(attention.gating_param.detach()), attention.pos_proj.weight.detach()
    if bool((gates != 1).any()):
        reason = f"a head gives content {1 - gates.min().item():.2g} of its attention"
        raise UnsupportedError("C2A101", reason, "What positions alone do: conv2attn check-span MODEL --position-only.")
    if not bool((weight[:, 2] < 0).all()):
        reason = f"head {int((weight[:, 2] >= 0).nonzero()[0])} does not attend less to what is farther away"
        raise UnsupportedError("C2A101", reason, "Such a head has no centre.")
    alpha, heads, dim = -weight[:, 2], attention.num_heads, attention.dim
    encoding = Encoding.of("quadratic", (weight[:, :2] / (2 * alpha[:, None])).flip(1), alpha)
    with generators_kept():
        layer = MultiHeadSelfAttention(dim, dim, encoding, d_head=dim // heads).to(weight)
    output = attention.proj.weight.detach()
    bias = attention.proj.bias.detach()
    bias = bias if attention.v.bias is None else bias + output @ attention.v.bias.detach()
    value = attention.v.weight.detach().unflatten(0, (heads, -1))
    return layer.hold(Weights(value, output.unflatten(1, (heads, -1)).transpose(0, 1), bias))
