"""Vision transformers with absolute positions: timm, torchvision, transformers."""

from torch import nn

from conv2attn.models.frontends.registry import First, first_layer, leading_positions_of, query_and_key_layers
from conv2attn.models.positions.absolute import attention_of_positions
from conv2attn.models.positions.module_places import ModulePlace, is_kind
from conv2attn.models.positions.position_scores import Unread

PLAIN_OF_TIMM = ("attention.Attention", "vision_transformer.Attention")


@first_layer("timm.models.vision_transformer.VisionTransformer")
def vit_of_timm(place: ModulePlace) -> First:
    """Positions of the patches come last in `pos_embed`; query, key and value weights are one matrix."""
    network = place.module
    block, patches = network.blocks[0], network.patch_embed
    layer = block.attn
    if network.pos_embed is None:
        return layer, Unread("no absolute positions are added to its tokens")
    plain = is_kind(block, "vision_transformer.Block") and is_kind(layer, *PLAIN_OF_TIMM)
    if not plain or not all(isinstance(norm, nn.Identity) for norm in (layer.q_norm, layer.k_norm)):
        return layer, Unread("its first block is not the plain one, or norms its queries and keys")
    query, key = query_and_key_layers(layer.qkv.weight, layer.qkv.bias)
    attention = attention_of_positions(
        network.pos_embed[0, -patches.num_patches :],
        query,
        key,
        layer.num_heads,
        grid=tuple(patches.grid_size),
        norms=(network.norm_pre, block.norm1),
        scale=layer.scale,
        others=leading_positions_of(network.pos_embed[0], patches.num_patches, network.num_prefix_tokens),
    )
    return layer, attention


@first_layer("torchvision.models.vision_transformer.VisionTransformer")
def vit_of_torchvision(place: ModulePlace) -> First:
    """One class token first; weights of torch's own attention layer."""
    network = place.module
    block, side = network.encoder.layers[0], network.image_size // network.patch_size
    layer = block.self_attention
    query, key = query_and_key_layers(layer.in_proj_weight, layer.in_proj_bias)
    attention = attention_of_positions(
        network.encoder.pos_embedding[0, 1:],
        query,
        key,
        layer.num_heads,
        grid=(side, side),
        norms=(block.ln_1,),
        others=network.encoder.pos_embedding[0, :1],
    )
    return layer, attention


@first_layer("modeling_vit.ViTModel", "modeling_deit.DeiTModel", "modeling_vit_mae.ViTMAEModel")
def vit_of_transformers(place: ModulePlace) -> First:
    """Learned positions, or the sinusoidal ones of a masked autoencoder, as if no patch were masked."""
    network = place.module
    block, patches = network.layers[0], network.embeddings.patch_embeddings
    layer, positions = block.attention, network.embeddings.position_embeddings[0]
    attention = attention_of_positions(
        positions[-patches.num_patches :],
        layer.q_proj,
        layer.k_proj,
        layer.num_attention_heads,
        grid=tuple(image // patch for image, patch in zip(patches.image_size, patches.patch_size, strict=True)),
        norms=(block.layernorm_before,),
        scale=layer.scaling,
        others=positions[: -patches.num_patches],
    )
    return layer, attention
