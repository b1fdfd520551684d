"""Layers with a term of relative position: tables of biases, gates, decomposed tables; `q . k` is held at zero."""

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from conv2attn.errors import UsageError
from conv2attn.networks.positions.position_rules import (
    SCORE_ROUNDOFF,
    ModulePlace,
    PositionAttention,
    Unread,
    leading_note,
    relative,
    windows_note,
)
from conv2attn.theory.basis import AttentionGrid, Sides, Sites
from conv2attn.theory.bounds import gamma

BIAS = "relative position bias, with q . k held at zero"


def table_biases(part: Any) -> Tensor:
    """The biases in a table (displacements, heads), as (heads, queries, keys)."""
    return biases_by_index(part.relative_position_bias_table.detach().cpu().double(), part.relative_position_index)


def biases_by_index(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a table by an index (queries, keys) or flat, as (heads, queries, keys)."""
    tokens = math.isqrt(index.numel())
    return table[index.cpu().reshape(tokens, tokens)].permute(2, 0, 1)


def in_windows(scores: Tensor, sides: Sequence[int], place: ModulePlace, uncertainty: float = 0.0) -> PositionAttention:
    """Attention by position of a layer in windows: that of a window which the edge of the image does not cut."""
    grid = AttentionGrid(tuple(sides), Sites.everywhere(2))
    notes = [windows_note(sides)]
    shift = next(place.attribute_values("shift_size"), 0)
    if max(shift) if isinstance(shift, Sequence) else shift:
        notes.append("shifted windows that the edge of the image cuts also mask pixels, which is not part of this")
    return PositionAttention(scores, grid, parameter_dtype(place), BIAS, uncertainty, tuple(notes))


def behind_class_token(tables: Sequence[tuple[Tensor, Any]], place: ModulePlace) -> PositionAttention | Unread:
    """Attention by the sum of biases of patches behind a class token; the class token becomes the last key."""
    if not tables:
        return Unread("it has no term of relative position")
    scores = sum((bias for bias, _ in tables), torch.zeros(()))
    grid = AttentionGrid(tuple(tables[0][1].window_size), Sites.everywhere(2))
    uncertainty = 0.0 if len(tables) == 1 else SCORE_ROUNDOFF * float(scores.abs().max())
    return PositionAttention(
        scores[:, 1:].roll(-1, -1), grid, parameter_dtype(place), BIAS, uncertainty, leading_note(1), extra=1
    )


def parameter_dtype(place: ModulePlace) -> torch.dtype:
    """The dtype of the layer's parameters."""
    dtype: torch.dtype = next(place.module.parameters()).dtype
    return dtype


def sides_of_patches(place: ModulePlace) -> Sides:
    """The grid of patches of the network that a layer is in.

    Raises:
        UsageError: nothing says what it is (C2A503).
    """
    for patches in place.attribute_values("patch_embed"):
        if getattr(patches, "grid_size", None):
            return tuple(patches.grid_size)
        return (math.isqrt(patches.num_patches),) * 2
    raise UsageError("C2A503", f"{place.name}: it attends on every square grid", "Say which with --grid.")


@relative("swin_transformer.WindowAttention", "swin_transformer.ShiftedWindowAttention")
def swin(place: ModulePlace) -> PositionAttention:
    """A bias for each displacement within a window. Source: Liu et al. 2021, Eq. 4; timm, torchvision, microsoft."""
    return in_windows(table_biases(place.module), place.module.window_size, place)


@relative("modeling_swin.SwinAttention")
def swin_of_transformers(place: ModulePlace) -> PositionAttention:
    """Swin of the package transformers, whose biases are in a module of their own."""
    part = place.module.relative_position_bias
    return in_windows(table_biases(part), part.window_size, place)


@relative(
    "swin_transformer_v2.WindowAttention",
    "swin_transformer.ShiftedWindowAttentionV2",
    "modeling_swinv2.Swinv2SelfAttention",
)
def swin_v2(place: ModulePlace) -> PositionAttention:
    """`16 sigmoid` of a small network of the displacement. Source: Liu et al. 2022, Sec. 3.3."""
    module = place.module
    layers = module.cpb_mlp if hasattr(module, "cpb_mlp") else module.continuous_position_bias_mlp
    first, bias, second = (w.detach().cpu().double() for w in (layers[0].weight, layers[0].bias, layers[2].weight))
    coordinates = module.relative_coords_table.cpu().double().flatten(0, -2)
    table = torch.relu(coordinates @ first.T + bias) @ second.T
    sizes = (coordinates.abs() @ first.abs().T + bias.abs()) @ second.abs().T
    # the slope of 16 sigmoid is at most 4; its own rounding is at most four units of its value
    uncertainty = 4 * gamma(sum(second.shape) + 8, SCORE_ROUNDOFF) * float(sizes.max()) + 64 * SCORE_ROUNDOFF
    scores = 16 * torch.sigmoid(biases_by_index(table, module.relative_position_index))
    return in_windows(scores, module.window_size, place, uncertainty)


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


@relative(
    "levit.Attention",
    "levit.AttentionDownsample",
    "levit.AttentionSubsample",
    "modeling_levit.LevitAttention",
    "modeling_levit.LevitAttentionSubsample",
)
def levit(place: ModulePlace) -> PositionAttention:
    """A bias for each `(|dx|, |dy|)`; where the layer shrinks the image, only every stride-th pixel asks.

    Source: Graham et al. 2021, Sec. 4.5; timm, transformers, facebookresearch/LeViT.
    """
    module = place.module
    biases, index = module.attention_biases.detach().cpu().double(), module.attention_bias_idxs.cpu()
    sides = getattr(module, "resolution", math.isqrt(index.shape[1]))
    keys = (sides, sides) if isinstance(sides, int) else tuple(sides)
    stride = 1
    if index.shape[0] < index.shape[1]:
        stride = next(s for part in module.modules() if isinstance(s := getattr(part, "stride", None), int))
    grid = AttentionGrid(keys, Sites((stride, stride), (0, 0), (0, 0)))
    return PositionAttention(biases[:, index], grid, parameter_dtype(place), BIAS)


@relative("convit.GPSA")
def gated(place: ModulePlace) -> PositionAttention:
    """`softmax(w . (dx, dy, dx^2 + dy^2))`, a quadratic encoding, which a gate mixes with attention to content.

    Source: d'Ascoli et al. 2021, Eqs. 5 to 8; timm, facebookresearch/convit.
    """
    module, sides = place.module, place.grid or sides_of_patches(place)
    if len(sides) != 2 or sides[0] != sides[1]:
        reason = f"{place.name}: its positions are those of a square, not of {'x'.join(map(str, sides))} patches"
        raise UsageError("C2A503", reason, "Pass square images, or a square --grid.")
    grid = AttentionGrid(sides, Sites.everywhere(2))
    rows, columns = grid.displacements().double().unbind(-1)
    features = torch.stack([columns, rows, rows**2 + columns**2], -1)
    weight, bias = (each.detach().cpu().double() for each in (module.pos_proj.weight, module.pos_proj.bias))
    scores = (features @ weight.T + bias).permute(2, 0, 1)
    uncertainty = gamma(4, SCORE_ROUNDOFF) * float((features.abs() @ weight.abs().T + bias.abs()).max())
    gates = " ".join(f"{gate:.3f}" for gate in torch.sigmoid(module.gating_param.detach().cpu().double()).tolist())
    note = f"gates {gates}: the share that this is of each head's attention; the rest depends on content"
    return PositionAttention(scores, grid, parameter_dtype(place), "gated positional attention", uncertainty, (note,))


DECOMPOSED = "decomposed relative positions, met by queries that are their bias; q . k held at zero"


@relative("modeling_sam.SamVisionAttention", "modeling_sam.SamVisionSdpaAttention")
def sam(place: ModulePlace) -> PositionAttention | Unread:
    """`q . (R_rows + R_columns)` of the displacement, where content held at zero leaves of q its bias.

    Source: Kirillov et al. 2023; Li et al. 2022 (MViTv2), Eq. 4.
    """
    module: Any = place.module
    if not module.use_rel_pos or module.qkv.bias is None:
        return Unread("it has no term of relative position, or no bias that meets it")
    tables = [each.detach().cpu().double() for each in (module.rel_pos_h, module.rel_pos_w)]
    sides = tuple((len(table) + 1) // 2 for table in tables)
    bias = module.qkv.bias.detach().cpu().double().chunk(3)[0].unflatten(0, (module.num_attention_heads, -1))
    rows, columns = (decomposed_scores(table, bias) for table in tables)
    scores = rows[:, :, None, :, None] + columns[:, None, :, None, :]
    sizes = [decomposed_scores(table.abs(), bias.abs()).max() for table in tables]
    uncertainty = gamma(bias.shape[1] + 2, SCORE_ROUNDOFF) * float(sum(sizes))
    grid = AttentionGrid(sides, Sites.everywhere(2))
    notes = (windows_note(sides),) if any(place.attribute_values("window_size")) else ()
    return PositionAttention(
        scores.flatten(3, 4).flatten(1, 2), grid, parameter_dtype(place), DECOMPOSED, uncertainty, notes
    )


def decomposed_scores(table: Tensor, queries: Tensor) -> Tensor:
    """`q . R` by (head, query, key) along an axis; rows of the table go by query less key."""
    side = (len(table) + 1) // 2
    index = torch.arange(side)[:, None] - torch.arange(side) + side - 1
    return torch.einsum("hc,qkc->hqk", queries, table[index])
