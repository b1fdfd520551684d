"""The vision encoders of CLIP and SigLIP: learned positions, a norm in front of each layer."""

from typing import Any

from conv2attn.models.frontends.registry import First, first_layer
from conv2attn.models.positions.absolute import attention_of_positions
from conv2attn.models.positions.module_places import ModulePlace


@first_layer("modeling_clip.CLIPVisionModel", "modeling_clip.CLIPVisionTransformer")
def clip(place: ModulePlace) -> First:
    """A class token first, and one more norm before all layers. Source: Radford et al. 2021."""
    network = place.module
    return vision_encoder(network, (network.pre_layrnorm,), leading=1)


@first_layer("modeling_siglip.SiglipVisionModel", "modeling_siglip.SiglipVisionTransformer")
def siglip(place: ModulePlace) -> First:
    """Patches alone. Source: Zhai et al. 2023."""
    return vision_encoder(place.module, (), leading=0)


def vision_encoder(network: Any, norms: tuple[Any, ...], leading: int) -> First:
    """Attention by position of the first layer of such an encoder."""
    embeddings, block = network.embeddings, network.encoder.layers[0]
    layer, positions = block.self_attn, embeddings.position_embedding.weight
    side = embeddings.image_size // embeddings.patch_size
    attention = attention_of_positions(
        positions[leading:],
        layer.q_proj,
        layer.k_proj,
        layer.num_heads,
        grid=(side, side),
        norms=(*norms, block.layer_norm1),
        scale=layer.scale,
        others=positions[:leading] if leading else None,
    )
    return layer, attention
