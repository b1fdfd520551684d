"""A layer as torch's own multi-head attention, with absolute positions as queries and keys."""

import math

import torch
from torch import Tensor, nn

from conv2attn.arguments import check_has_numbers, check_kind
from conv2attn.errors import UnsupportedError, whole_number
from conv2attn.generators import generators_kept
from conv2attn.layers.attention.features import check_scores
from conv2attn.layers.attention.layer import MultiHeadSelfAttention
from conv2attn.theory.basis import AttentionGrid, Padding, Sites, isotropic


class PositionedAttention(nn.Module):
    """`torch.nn.MultiheadAttention` whose queries and keys are absolute positions, and whose values are the pixels.

    Terms that depend on the query alone cancel in the softmax, so `-alpha |k - q - c|^2` is the inner product of `(2
    alpha (q + c), -alpha)` and `(k, |k|^2)`. Coordinates count from the middle of the key grid.

    Args:
        attention: the attention of torch; its embedding is `heads * max(d_head, axes + 1, ceil(d_out / heads))` wide,
            queries and outputs padded with zeros.
        padding, sites: geometry of the original layer.
        d_out: output channels.
    """

    def __init__(self, attention: nn.MultiheadAttention, padding: Padding, sites: Sites, d_out: int):
        super().__init__()
        self.attention, self.padding, self.sites, self.d_out = attention, padding, sites, d_out

    def forward(self, image: Tensor) -> Tensor:
        """(batch, d_in, *sides) -> (batch, d_out, *queries)."""
        padded = self.padding.pad(image)
        grid = AttentionGrid(tuple(padded.shape[2:]), self.sites, image.device)
        queries, keys = self.positions(grid, image)
        tokens = padded.flatten(2).mT
        result, _ = self.attention(queries, keys, tokens, need_weights=False)
        return result[..., : self.d_out].mT.unflatten(2, grid.queries)

    def positions(self, grid: AttentionGrid, image: Tensor) -> tuple[Tensor, Tensor]:
        """The queries, (batch, queries, embedding) of (site, 1, 0 ...), and the keys, (batch, keys, axes + 1)."""
        sites, keys = (places.to(image) for places in grid.centred())
        asking = torch.cat([sites, torch.ones_like(sites[:, :1])], -1)
        asking = nn.functional.pad(asking, (0, self.attention.embed_dim - asking.shape[1]))
        answering = torch.cat([keys, keys.square().sum(-1, keepdim=True)], -1)
        return tuple(t.expand(len(image), -1, -1) for t in (asking, answering))  # type: ignore[return-value]


def to_mha(layer: MultiHeadSelfAttention, side: int = 64) -> PositionedAttention:
    """Computes the map of `layer` by a plain `torch.nn.MultiheadAttention`, for key grids with sides up to `side`.

    Both are equal within rounding if the features of positions have an error of at most 2^-10 in a score.

    Raises:
        UnsupportedError: the heads are not quadratic, read content, or have groups (C2A101).
        EngineError: the positions are not accurate enough in float32 or float64 on such grids (C2A201).
    Examples:
        >>> import conv2attn, torch
        >>> layer = conv2attn.convert(torch.nn.Conv2d(2, 3, 3))
        >>> image = torch.randn(1, 2, 6, 7)
        >>> torch.allclose(conv2attn.to_mha(layer, side=8)(image), layer(image), atol=1e-5)
        True
    """
    check_kind(layer, "layer", MultiHeadSelfAttention, "Convert the convolution first: conv2attn.convert(layer).")
    check_has_numbers(layer, "layer")
    side, basis = whole_number(side, "side"), layer.basis()
    operators, weights, heads = isotropic(basis.operators), basis.weights, layer.heads
    if operators is None or layer.groups > 1:
        raise UnsupportedError(
            "C2A101",
            f"{layer.name}: only quadratic heads without groups are torch's attention",
            "Pass a layer of one group, converted with encoding='quadratic'.",
        )
    dtype = layer.like.dtype
    check_scores(layer.name, operators.numbers(), side, dtype)
    axes = layer.dimensions
    width = max(layer.d_head, axes + 1, math.ceil(layer.d_out / heads))
    width += heads * width == axes + 1 == layer.d_in  # if all are equal, torch packs the three maps into one
    with generators_kept():
        attention = nn.MultiheadAttention(heads * width, heads, kdim=axes + 1, vdim=layer.d_in, batch_first=True)
    attention = attention.to(layer.like)
    asking, answering = torch.zeros(2, heads, width, axes + 1).to(layer.like).unbind(0)
    alpha = operators.alpha.detach().to(dtype)
    diagonal = torch.eye(axes).to(layer.like)
    asking[:, :axes, :axes] = 2 * alpha[:, None, None] * diagonal
    asking[:, :axes, axes] = 2 * alpha[:, None] * operators.center.detach().to(dtype)
    asking[:, axes, axes] = -alpha
    answering[:, : axes + 1] = torch.eye(axes + 1).to(layer.like)
    reads, writes = weights.explicit_factors()
    value = layer.like.new_zeros(heads, width, layer.d_in)
    output = layer.like.new_zeros(heads * width, heads, width)
    value[:, : layer.d_head] = reads
    output[: layer.d_out, :, : layer.d_head] = writes.transpose(0, 1)
    with torch.no_grad():
        attention.q_proj_weight.zero_()[:, : axes + 1] = asking.flatten(0, 1) * math.sqrt(width)
        attention.k_proj_weight.copy_(answering.flatten(0, 1))
        attention.v_proj_weight.copy_(value.flatten(0, 1))
        attention.out_proj.weight.copy_(output.flatten(1))
        attention.in_proj_bias.zero_()
        attention.out_proj.bias.zero_()
        if layer.bias is not None:
            attention.out_proj.bias[: layer.d_out] = layer.bias
    return PositionedAttention(attention, basis.padding, layer.sites, layer.d_out)
