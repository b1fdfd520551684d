"""Where known encoders keep their positions and what their first layer makes of them: one rule a kind."""

from typing import Any

from torch import Tensor, nn

from conv2attn.models.positions.absolute import attention_of_positions, first_of
from conv2attn.models.positions.attention import PositionAttention, Unread
from conv2attn.models.positions.places import Place, is_of, registering

ENCODERS: dict[str, Any] = {}
reads = registering(ENCODERS)
PLAIN_OF_TIMM = ("attention.Attention", "vision_transformer.Attention")
First = tuple[nn.Module, PositionAttention | Unread]
"""The first attention layer of an encoder, and what it attends to."""


@reads("timm.models.vision_transformer.VisionTransformer")
def vit_of_timm(place: Place) -> First:
    """Positions of the patches come last in `pos_embed`; query, key and value weights are one matrix."""
    network = place.module
    block, patches = network.blocks[0], network.patch_embed
    layer = block.attn
    if network.pos_embed is None:
        return layer, Unread("no absolute positions are added to its tokens")
    plain = is_of(block, "vision_transformer.Block") and is_of(layer, *PLAIN_OF_TIMM)
    if not plain or not all(isinstance(norm, nn.Identity) for norm in (layer.q_norm, layer.k_norm)):
        return layer, Unread("its first block is not the plain one, or norms its queries and keys")
    query, key = parts(layer.qkv.weight, layer.qkv.bias)
    found = attention_of_positions(
        network.pos_embed[0, -patches.num_patches :],
        query,
        key,
        layer.num_heads,
        grid=tuple(patches.grid_size),
        norms=(network.norm_pre, block.norm1),
        scale=layer.scale,
        others=others_of(network.pos_embed[0], patches.num_patches, network.num_prefix_tokens),
    )
    return layer, found


@reads("torchvision.models.vision_transformer.VisionTransformer")
def vit_of_torchvision(place: Place) -> First:
    """One class token first; weights of torch's own attention layer."""
    network = place.module
    block, side = network.encoder.layers[0], network.image_size // network.patch_size
    layer = block.self_attention
    query, key = parts(layer.in_proj_weight, layer.in_proj_bias)
    found = attention_of_positions(
        network.encoder.pos_embedding[0, 1:],
        query,
        key,
        layer.num_heads,
        grid=(side, side),
        norms=(block.ln_1,),
        others=network.encoder.pos_embedding[0, :1],
    )
    return layer, found


@reads("modeling_vit.ViTModel", "modeling_deit.DeiTModel", "modeling_vit_mae.ViTMAEModel")
def vit_of_transformers(place: Place) -> First:
    """Learned positions, or the sinusoidal ones of a masked autoencoder, as if no patch were masked."""
    network = place.module
    block, patches = network.layers[0], network.embeddings.patch_embeddings
    layer, positions = block.attention, network.embeddings.position_embeddings[0]
    found = attention_of_positions(
        positions[-patches.num_patches :],
        layer.q_proj,
        layer.k_proj,
        layer.num_attention_heads,
        grid=tuple(image // patch for image, patch in zip(patches.image_size, patches.patch_size, strict=True)),
        norms=(block.layernorm_before,),
        scale=layer.scaling,
        others=positions[: -patches.num_patches],
    )
    return layer, found


@reads("modeling_bert.BertModel")
def bert(place: Place) -> First:
    """A line of tokens, all of them positions; a norm stands behind the embeddings."""
    network = place.module
    layer = network.encoder.layer[0].attention.self
    if layer.is_decoder or layer.is_causal:
        return layer, Unread("it masks the tokens that follow, which is not in its parameters")
    return layer, on_line(place, layer.query, layer.key, layer.num_attention_heads, layer.scaling)


@reads("modeling_distilbert.DistilBertModel")
def distilbert(place: Place) -> First:
    """The same by other names; positions may be sinusoidal."""
    network = place.module
    layer = network.transformer.layer[0].attention
    return layer, on_line(place, layer.q_lin, layer.k_lin, layer.n_heads, layer.scaling)


def on_line(place: Place, query: nn.Linear, key: nn.Linear, heads: int, scale: float) -> PositionAttention:
    """What the first layer of an encoder of sentences attends to, over as many tokens as the grid asks for."""
    embeddings = place.module.embeddings
    table = embeddings.position_embeddings.weight
    length = place.grid[0] if place.grid is not None and len(place.grid) == 1 else len(table)
    norms = (embeddings.LayerNorm,)
    return attention_of_positions(first_of(table, length), query, key, heads, grid=(length,), norms=norms, scale=scale)


def parts(weight: Tensor, bias: Tensor | None) -> list[nn.Linear]:
    """The query and key layers of one matrix for queries, keys and values."""
    layers = []
    for place in range(2):
        layer = nn.Linear(weight.shape[1], weight.shape[0] // 3, bias=bias is not None, device="meta")
        layer.weight = nn.Parameter(weight.detach().chunk(3)[place])
        if bias is not None:
            layer.bias = nn.Parameter(bias.detach().chunk(3)[place])
        layers.append(layer)
    return layers


def others_of(positions: Tensor, pixels: int, prefix: int) -> Tensor:
    """The positions of leading tokens: the first of the table, or zeros where it holds those of the pixels alone."""
    held = positions[: len(positions) - pixels]
    return held if len(held) == prefix else positions.new_zeros(prefix, positions.shape[1])
