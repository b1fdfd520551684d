"""Layers whose scores have a term of relative position: one rule a kind, with `q . k` held at zero.

What is left is the softmax of that term. Absolute positions that were added to the tokens count as content here.
"""

import copy
import math
from typing import Any

import torch

from conv2attn.basis import AttentionGrid, Sites
from conv2attn.bounds import gamma
from conv2attn.errors import UsageError
from conv2attn.models.positions.attention import UNIT, PositionAttention, Unread
from conv2attn.models.positions.biases import (
    BIAS,
    dtype_of,
    in_windows,
    looked_up,
    on_patches,
    sides_of_patches,
    square,
)
from conv2attn.models.positions.places import Place, registering

RELATIVE: dict[str, Any] = {}
reads = registering(RELATIVE)


@reads("convit.GPSA")
def gated(place: Place) -> PositionAttention:
    """`softmax(w . (dx, dy, dx^2 + dy^2))`, a quadratic encoding, which a gate mixes with attention to content.

    Source: d'Ascoli et al. 2021, Eqs. 5 to 8; timm, facebookresearch/convit.
    """
    module, sides = place.module, place.grid or sides_of_patches(place)
    if len(sides) != 2 or sides[0] != sides[1]:
        found = f"{place.name}: its positions are those of a square, not of {'x'.join(map(str, sides))} patches"
        raise UsageError("C2A503", found)
    grid = AttentionGrid(sides, Sites.everywhere(2))
    rows, columns = grid.displacements().double().unbind(-1)
    features = torch.stack([columns, rows, rows**2 + columns**2], -1)
    weight, bias = (each.detach().double().cpu() for each in (module.pos_proj.weight, module.pos_proj.bias))
    scores = (features @ weight.T + bias).permute(2, 0, 1)
    doubt = gamma(4, UNIT) * float((features.abs() @ weight.abs().T + bias.abs()).max())
    gates = " ".join(f"{gate:.3f}" for gate in torch.sigmoid(module.gating_param.detach().double()).tolist())
    note = f"gates {gates}: the share that this is of each head's attention; the rest depends on content"
    return PositionAttention(scores, grid, dtype_of(place), "gated positional attention", doubt, (note,))


@reads("swin_transformer.WindowAttention", "swin_transformer.ShiftedWindowAttention")
def swin(place: Place) -> PositionAttention:
    """A bias for each displacement within a window. Source: Liu et al. 2021, Eq. 4; timm, torchvision, microsoft."""
    return in_windows(looked_up(place.module), place.module.window_size, place)


@reads("modeling_swin.SwinAttention")
def swin_of_transformers(place: Place) -> PositionAttention:
    """The same in the package transformers, where a module of its own holds the biases."""
    part = place.module.relative_position_bias
    return in_windows(looked_up(part), part.window_size, place)


@reads(
    "swin_transformer_v2.WindowAttention",
    "swin_transformer.ShiftedWindowAttentionV2",
    "modeling_swinv2.Swinv2SelfAttention",
)
def swin_v2(place: Place) -> PositionAttention:
    """`16 sigmoid` of what a small network makes of the displacement. Source: Liu et al. 2022, Sec. 3.3."""
    module = place.module
    layers = module.cpb_mlp if hasattr(module, "cpb_mlp") else module.continuous_position_bias_mlp
    first, bias, second = (w.detach().double().cpu() for w in (layers[0].weight, layers[0].bias, layers[2].weight))
    at = module.relative_coords_table.double().cpu().flatten(0, -2)
    table = torch.relu(at @ first.T + bias) @ second.T
    sizes = (at.abs() @ first.abs().T + bias.abs()) @ second.abs().T
    # the slope of 16 sigmoid is at most 4; its own rounding is at most four units of its value
    doubt = 4 * gamma(sum(second.shape) + 8, UNIT) * float(sizes.max()) + 64 * UNIT
    scores = 16 * torch.sigmoid(square(table, module.relative_position_index))
    return in_windows(scores, module.window_size, place, doubt)


@reads("beit.Attention", "modeling_finetune.Attention")
def beit(place: Place) -> PositionAttention | Unread:
    """Biases of its own, biases shared by all layers, or both. Source: Bao et al. 2022; timm, microsoft/unilm."""
    own = [place.module] if place.module.relative_position_bias_table is not None else []
    parts = [*own, *place.held("rel_pos_bias")]
    return on_patches([(looked_up(part), part) for part in parts], place)


@reads("modeling_beit.BeitAttention")
def beit_of_transformers(place: Place) -> PositionAttention | Unread:
    """The same in the package transformers, by the code of its modules, which resizes their tables."""
    parts = [*place.held("relative_position_bias"), *place.held("shared_position_bias")]
    return on_patches([(copy.deepcopy(p).double()(p.window_size)[0].detach().cpu(), p) for p in parts], place)


@reads(
    "levit.Attention",
    "levit.AttentionDownsample",
    "levit.AttentionSubsample",
    "modeling_levit.LevitAttention",
    "modeling_levit.LevitAttentionSubsample",
)
def levit(place: Place) -> PositionAttention:
    """A bias for each `(|dx|, |dy|)`; where the layer shrinks the image, only every stride-th pixel asks.

    Source: Graham et al. 2021, Sec. 4.5; timm, transformers, facebookresearch/LeViT.
    """
    module = place.module
    biases, index = module.attention_biases.detach().double().cpu(), module.attention_bias_idxs.cpu()
    sides = getattr(module, "resolution", math.isqrt(index.shape[1]))
    keys = (sides, sides) if isinstance(sides, int) else tuple(sides)
    stride = 1
    if index.shape[0] < index.shape[1]:
        stride = next(s for part in module.modules() if isinstance(s := getattr(part, "stride", None), int))
    grid = AttentionGrid(keys, Sites((stride, stride), (0, 0), (0, 0)))
    return PositionAttention(biases[:, index], grid, dtype_of(place), BIAS)
