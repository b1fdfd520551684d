"""Encoders that add a position to each token: the attention of their first layer on tokens that are positions alone.

Content held at zero means here: every embedding but that of the position (patches, words, segments, class tokens) is
zero, so that token i is the i-th position, learned or sinusoidal, or zero where a class token has none. It passes the
norms in front of the first attention layer, and its products with the query and key weights are the scores. Only the
first layer has such an attention: what reaches the second is no longer positions alone.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.networks.positions.position_rules import (
    SCORE_ROUNDOFF,
    First,
    ModulePlace,
    PositionAttention,
    Unread,
    check_library_code,
    first_layer,
    is_kind,
    leading_note,
)
from conv2attn.networks.values import Projection, head_count, projections_of
from conv2attn.theory.basis import AttentionGrid, Sides, Sites
from conv2attn.theory.bounds import gamma

ABSOLUTE = "absolute positions as tokens of the first layer, all other content held at zero"
PLAIN_OF_TIMM = ("attention.Attention", "vision_transformer.Attention")


def attention_of_positions(
    positions: Tensor,
    query: nn.Linear | Projection,
    key: nn.Linear | Projection,
    heads: int,
    *,
    grid: Sides,
    norms: Sequence[nn.Module] = (),
    scale: float | None = None,
    others: Tensor | None = None,
) -> PositionAttention:
    """`softmax(scale q . k)` with `q = W_qry t + b_qry`, `k = W_key t + b_key` and t the normed positions.

    Args:
        positions: (pixels, width), learned or sinusoidal.
        query, key: their outputs are split into heads one after the other.
        grid: sides of the pixels.
        norms: layer norms, identities or dropout, which evaluation leaves out, between the positions and the layer.
        scale: of the scores; by default the head width to the power of -1/2.
        others: (tokens, width), the positions of leading tokens that are no pixels.
    Raises:
        UsageError: positions that are not those of the grid (C2A503).
        UnsupportedError: a norm of another kind (C2A110).
    """
    pixels, leading_count = len(positions), 0 if others is None else len(others)
    tokens = torch.cat([positions, *([] if others is None else [others])]).detach().cpu().double()
    sizes = tokens.abs()
    for norm in norms:
        tokens, sizes = apply_norm(norm, tokens, sizes)
    queries, keys = apply_linear(tokens[:pixels], query, heads), apply_linear(tokens, key, heads)
    scale = queries.shape[-1] ** -0.5 if scale is None else scale
    scores = scale * products(queries, keys)
    unit = gamma(8 * tokens.shape[1] + 32, SCORE_ROUNDOFF)
    query_errors = unit * apply_linear(sizes[:pixels], query, heads, absolute=True)
    key_errors = unit * apply_linear(sizes, key, heads, absolute=True)
    score_errors = products(query_errors, keys.abs() + key_errors) + products(
        queries.abs(), key_errors + unit * keys.abs()
    )
    attention_grid = AttentionGrid(grid, Sites.everywhere(len(grid)))
    uncertainty = scale * float(score_errors.max())
    return PositionAttention(
        scores, attention_grid, query.weight.dtype, ABSOLUTE, uncertainty, leading_note(leading_count), leading_count
    )


def products(queries: Tensor, keys: Tensor) -> Tensor:
    """`q . k` of every pair, (heads, queries, keys)."""
    return torch.einsum("qhc,khc->hqk", queries, keys)


def apply_linear(tokens: Tensor, layer: nn.Linear | Projection, heads: int, absolute: bool = False) -> Tensor:
    """`W t + b` in float64, (tokens, heads, width); with `absolute`, of the absolute values of W and b."""
    weight = layer.weight.detach().cpu().double()
    bias = weight.new_zeros(()) if layer.bias is None else layer.bias.detach().cpu().double()
    product = tokens @ weight.abs().T + bias.abs() if absolute else tokens @ weight.T + bias
    return product.unflatten(-1, (heads, -1))


def apply_norm(norm: nn.Module, tokens: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens after a norm, and the sizes to which their rounding errors are proportional.

    An error e in a token moves the deviation from the mean by `e + mean(e)`, hence the deviation in units of its
    spread, `z`, by at most `(1 + |z|)` times that over the spread.

    Raises:
        UnsupportedError: neither a layer norm nor the identity, as dropout is in evaluation (C2A110).
    """
    if isinstance(norm, nn.Identity | nn.Dropout):
        return tokens, sizes
    if not isinstance(norm, nn.LayerNorm):
        raise UnsupportedError(
            "C2A110",
            f"positions pass a {type(norm).__name__}, which is not a layer norm",
            "Pass --inputs, so that its attention is captured as it runs.",
        )
    plain = F.layer_norm(tokens, norm.normalized_shape, eps=norm.eps)
    spread = torch.sqrt(tokens.var(-1, unbiased=False, keepdim=True) + norm.eps)
    normed_sizes = (sizes + sizes.mean(-1, keepdim=True)) / spread * (1 + plain.abs())
    ones, zeros = plain.new_ones(()), plain.new_zeros(())
    weight = ones if norm.weight is None else norm.weight.detach().cpu().double()
    bias = zeros if norm.bias is None else norm.bias.detach().cpu().double()
    return plain * weight + bias, normed_sizes * weight.abs() + bias.abs()


def on_grid(layer: Any, table: Tensor, grid: Sides, *norms: nn.Module) -> First:
    """The first layer of an encoder, and its attention on a table of positions: first leading tokens, then the grid's.

    Queries and keys, the heads and the scale are those of the layer, by their usual names.

    Raises:
        UnsupportedError: the queries and keys are not linear, or a norm is not its library's (C2A110).
    """
    check_library_code(norms)
    maps, pixels = projections_of(layer), len(table) - math.prod(grid)
    if "query" not in maps:
        raise UnsupportedError(
            "C2A110",
            f"the queries and keys of {type(layer).__name__} are not plain linear layers of its tokens",
            "Pass --inputs, so that its attention is captured as it runs.",
        )
    fused = getattr(layer, "fused_attn", False)  # torch's fused function has the scale of its own
    scale = None if fused else getattr(layer, "scale", getattr(layer, "scaling", None))
    positions, others = table[pixels:], table[:pixels]
    heads = head_count(layer)
    assert heads is not None
    attention = attention_of_positions(
        positions, maps["query"], maps["key"], heads, grid=grid, norms=norms, scale=scale, others=others
    )
    return layer, attention


@first_layer("timm.models.vision_transformer.VisionTransformer")
def vit_of_timm(place: ModulePlace) -> First:
    """Positions of the patches come last in `pos_embed`; leading tokens without a position are zero."""
    network = place.module
    block, patches = network.blocks[0], network.patch_embed
    layer = block.attn
    if network.pos_embed is None:
        return layer, Unread("no absolute positions are added to its tokens")
    plain = is_kind(block, "vision_transformer.Block") and is_kind(layer, *PLAIN_OF_TIMM)
    if not plain or not all(isinstance(norm, nn.Identity) for norm in (layer.q_norm, layer.k_norm)):
        return layer, Unread("its first block is not the plain one, or norms its queries and keys")
    table, leading = network.pos_embed[0], network.num_prefix_tokens
    if len(table) - patches.num_patches != leading:
        table = torch.cat([table.new_zeros(leading, table.shape[1]), table[-patches.num_patches :]])
    return on_grid(layer, table, tuple(patches.grid_size), network.pos_drop, network.norm_pre, block.norm1)


@first_layer("torchvision.models.vision_transformer.VisionTransformer")
def vit_of_torchvision(place: ModulePlace) -> First:
    """One class token first; weights of torch's own attention layer."""
    network = place.module
    block, side = network.encoder.layers[0], network.image_size // network.patch_size
    table = network.encoder.pos_embedding[0]
    return on_grid(block.self_attention, table, (side, side), network.encoder.dropout, block.ln_1)


@first_layer("modeling_vit.ViTModel", "modeling_deit.DeiTModel", "modeling_vit_mae.ViTMAEModel")
def vit_of_transformers(place: ModulePlace) -> First:
    """Learned positions, or the sinusoidal ones of a masked autoencoder, as if no patch were masked."""
    network = place.module
    block, patches = network.layers[0], network.embeddings.patch_embeddings
    grid = tuple(image // patch for image, patch in zip(patches.image_size, patches.patch_size, strict=True))
    norms = [getattr(network.embeddings, "dropout", nn.Identity()), block.layernorm_before]  # MAE has no dropout
    return on_grid(block.attention, network.embeddings.position_embeddings[0], grid, *norms)


@first_layer("modeling_clip.CLIPVisionModel", "modeling_clip.CLIPVisionTransformer")
def clip(place: ModulePlace) -> First:
    """A class token first, and one more norm before all layers. Source: Radford et al. 2021."""
    return vision_encoder(place.module, place.module.pre_layrnorm)


@first_layer("modeling_siglip.SiglipVisionModel", "modeling_siglip.SiglipVisionTransformer")
def siglip(place: ModulePlace) -> First:
    """Patches alone. Source: Zhai et al. 2023."""
    return vision_encoder(place.module)


def vision_encoder(network: Any, *norms: nn.Module) -> First:
    """Attention by position of the first layer of the vision encoders of CLIP and SigLIP."""
    embeddings, block = network.embeddings, network.encoder.layers[0]
    side = embeddings.image_size // embeddings.patch_size
    return on_grid(block.self_attn, embeddings.position_embedding.weight, (side, side), *norms, block.layer_norm1)


@first_layer("modeling_dinov2.Dinov2Model")
def dinov2(place: ModulePlace) -> First:
    """A class token with a position, and patches, as at the size that it was trained for. Source: Oquab et al. 2023."""
    network = place.module
    block, positions = network.encoder.layer[0], network.embeddings.position_embeddings[0]
    side = round((len(positions) - 1) ** 0.5)
    if side**2 != len(positions) - 1:
        return block.attention, Unread(f"its {len(positions) - 1} positions are not those of a square")
    return on_grid(block.attention, positions, (side, side), network.embeddings.dropout, block.norm1)


@first_layer("modeling_bert.BertModel")
def bert(place: ModulePlace) -> First:
    """A line of tokens, all of them positions; a norm stands behind the embeddings."""
    layer = place.module.encoder.layer[0].attention.self
    if layer.is_decoder or layer.is_causal:
        return layer, Unread("it masks the tokens that follow, which is not in its parameters")
    embeddings = place.module.embeddings
    return on_line(place, layer, embeddings.position_embeddings, embeddings.LayerNorm, embeddings.dropout)


@first_layer("modeling_distilbert.DistilBertModel")
def distilbert(place: ModulePlace) -> First:
    """DistilBERT: BERT's parts under other names; positions may be sinusoidal."""
    layer, embeddings = place.module.transformer.layer[0].attention, place.module.embeddings
    return on_line(place, layer, embeddings.position_embeddings, embeddings.LayerNorm, embeddings.dropout)


@first_layer("modeling_whisper.WhisperEncoder")
def whisper(place: ModulePlace) -> First:
    """Sinusoidal positions along a line of frames. Source: Radford et al. 2022."""
    block = place.module.layers[0]
    return on_line(place, block.self_attn, place.module.embed_positions, block.self_attn_layer_norm)


def on_line(place: ModulePlace, layer: nn.Module, positions: nn.Embedding, *norms: nn.Module) -> First:
    """The first layer on a line of as many tokens as there are positions, or as the grid asks for.

    Raises:
        UsageError: there are fewer positions (C2A503).
    """
    table = positions.weight
    length = place.grid[0] if place.grid is not None and len(place.grid) == 1 else len(table)
    if length > len(table):
        raise UsageError(
            "C2A503",
            f"there are {len(table)} positions, not {length}",
            "Pass the --grid and the --extra-tokens that the positions are of.",
        )
    return on_grid(layer, table[:length], (length,), *norms)
