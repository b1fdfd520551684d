"""BEiT: biases of a layer, shared by all, or both."""

import copy

from conv2attn.models.frontends.registry import relative
from conv2attn.models.positions.attention import PositionAttention, Unread
from conv2attn.models.positions.biases import looked_up, on_patches
from conv2attn.models.positions.places import Place


@relative("beit.Attention", "modeling_finetune.Attention")
def beit(place: Place) -> PositionAttention | Unread:
    """Biases of its own, biases shared by all layers, or both. Source: Bao et al. 2022; timm, microsoft/unilm."""
    own = [place.module] if place.module.relative_position_bias_table is not None else []
    parts = [*own, *place.held("rel_pos_bias")]
    return on_patches([(looked_up(part), part) for part in parts], place)


@relative("modeling_beit.BeitAttention")
def beit_of_transformers(place: Place) -> PositionAttention | Unread:
    """Biases of BEiT in the package transformers, by the code of its modules, which resizes their tables."""
    parts = [*place.held("relative_position_bias"), *place.held("shared_position_bias")]
    return on_patches([(copy.deepcopy(p).double()(p.window_size)[0].detach().cpu(), p) for p in parts], place)
