"""The encoder of Whisper: sinusoidal positions along a line of frames."""

from torch import nn

from conv2attn.models.frontends.registry import First, first_layer
from conv2attn.models.positions.absolute import attention_of_positions, first_positions
from conv2attn.models.positions.module_places import ModulePlace


@first_layer("modeling_whisper.WhisperEncoder")
def whisper(place: ModulePlace) -> First:
    """As many frames as there are positions, or as the grid asks for. Source: Radford et al. 2022."""
    network = place.module
    block, table = network.layers[0], network.embed_positions.weight
    layer: nn.Module = block.self_attn
    length = place.grid[0] if place.grid is not None and len(place.grid) == 1 else len(table)
    attention = attention_of_positions(
        first_positions(table, length),
        block.self_attn.q_proj,
        block.self_attn.k_proj,
        block.self_attn.num_heads,
        grid=(length,),
        norms=(block.self_attn_layer_norm,),
        scale=block.self_attn.scaling,
    )
    return layer, attention
