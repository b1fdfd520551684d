"""BEiT: biases of a layer, shared by all, or both."""

import copy

from conv2attn.models.frontends.registry import relative
from conv2attn.models.positions.bias_tables import behind_class_token, table_biases
from conv2attn.models.positions.module_places import ModulePlace
from conv2attn.models.positions.position_scores import PositionAttention, Unread


@relative("beit.Attention", "modeling_finetune.Attention")
def beit(place: ModulePlace) -> PositionAttention | Unread:
    """Biases of its own, biases shared by all layers, or both. Source: Bao et al. 2022; timm, microsoft/unilm."""
    own_table = [place.module] if place.module.relative_position_bias_table is not None else []
    tables = [*own_table, *place.attribute_values("rel_pos_bias")]
    return behind_class_token([(table_biases(part), part) for part in tables], place)


@relative("modeling_beit.BeitAttention")
def beit_of_transformers(place: ModulePlace) -> PositionAttention | Unread:
    """Biases of BEiT in the package transformers, by the code of its modules, which resizes their tables."""
    tables = [*place.attribute_values("relative_position_bias"), *place.attribute_values("shared_position_bias")]
    return behind_class_token([(copy.deepcopy(p).double()(p.window_size)[0].detach().cpu(), p) for p in tables], place)
