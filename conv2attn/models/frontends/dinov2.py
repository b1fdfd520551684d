"""DINOv2 of the package transformers, with registers or without."""

from conv2attn.models.frontends.registry import First, first_layer
from conv2attn.models.positions.absolute import attention_of_positions
from conv2attn.models.positions.module_places import ModulePlace
from conv2attn.models.positions.position_scores import Unread


@first_layer("modeling_dinov2.Dinov2Model")
def dinov2(place: ModulePlace) -> First:
    """A class token with a position, and patches, as at the size that it was trained for. Source: Oquab et al. 2023."""
    network = place.module
    block, embeddings = network.encoder.layer[0], network.embeddings
    layer, positions = block.attention, embeddings.position_embeddings[0]
    side = round((len(positions) - 1) ** 0.5)
    if side**2 != len(positions) - 1:
        return layer, Unread(f"its {len(positions) - 1} positions are not those of a square")
    attention = attention_of_positions(
        positions[1:],
        layer.q_proj,
        layer.k_proj,
        layer.num_attention_heads,
        grid=(side, side),
        norms=(block.norm1,),
        scale=layer.scaling,
        others=positions[:1],
    )
    return layer, attention
