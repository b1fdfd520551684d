"""The image encoder of SAM: decomposed relative positions, one term for rows and one for columns."""

from typing import Any

import torch
from torch import Tensor

from conv2attn.basis import AttentionGrid, Sites
from conv2attn.bounds import gamma
from conv2attn.models.frontends.registry import relative
from conv2attn.models.positions.bias_tables import parameter_dtype
from conv2attn.models.positions.module_places import ModulePlace
from conv2attn.models.positions.position_scores import UNIT, PositionAttention, Unread
from conv2attn.models.tokens import windows_note

HOW = "decomposed relative positions, met by queries that are their bias; q . k held at zero"


@relative("modeling_sam.SamVisionAttention", "modeling_sam.SamVisionSdpaAttention")
def sam(place: ModulePlace) -> PositionAttention | Unread:
    """`q . (R_rows + R_columns)` of the displacement, where content held at zero leaves of q its bias.

    Source: Kirillov et al. 2023; Li et al. 2022 (MViTv2), Eq. 4.
    """
    module: Any = place.module
    if not module.use_rel_pos or module.qkv.bias is None:
        return Unread("it has no term of relative position, or no bias that meets it")
    tables = [each.detach().double().cpu() for each in (module.rel_pos_h, module.rel_pos_w)]
    sides = tuple((len(table) + 1) // 2 for table in tables)
    bias = module.qkv.bias.detach().double().cpu().chunk(3)[0].unflatten(0, (module.num_attention_heads, -1))
    rows, columns = (decomposed_scores(table, bias) for table in tables)
    scores = rows[:, :, None, :, None] + columns[:, None, :, None, :]
    sizes = [decomposed_scores(table.abs(), bias.abs()).max() for table in tables]
    uncertainty = gamma(bias.shape[1] + 2, UNIT) * float(sum(sizes))
    grid = AttentionGrid(sides, Sites.everywhere(2))
    notes = (windows_note(sides),) if any(place.attribute_values("window_size")) else ()
    return PositionAttention(scores.flatten(3, 4).flatten(1, 2), grid, parameter_dtype(place), HOW, uncertainty, notes)


def decomposed_scores(table: Tensor, queries: Tensor) -> Tensor:
    """`q . R` by (head, query, key) along an axis; rows of the table go by query less key."""
    side = (len(table) + 1) // 2
    index = torch.arange(side)[:, None] - torch.arange(side) + side - 1
    return torch.einsum("hc,qkc->hqk", queries, table[index])
