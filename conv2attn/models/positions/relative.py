"""Layers whose scores have a term of relative position: one rule a kind, with `q . k` held at zero.

What is left is the softmax of that term. Absolute positions that were added to the tokens count as content here.
"""

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from conv2attn.basis import AttentionGrid, Sides, Sites
from conv2attn.bounds import gamma
from conv2attn.errors import UsageError
from conv2attn.models.positions.attention import PositionAttention, Unread, dropped
from conv2attn.models.positions.places import Place, registering

RELATIVE: dict[str, Any] = {}
reads = registering(RELATIVE)
UNIT = 2.0**-53
BIAS = "relative position bias, with q . k held at zero"


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


def looked_up(part: Any) -> Tensor:
    """The biases in a table (displacements, heads), as (heads, queries, keys)."""
    return square(part.relative_position_bias_table.detach().double().cpu(), part.relative_position_index)


def square(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a table by an index (queries, keys) or flat, as (heads, queries, keys)."""
    tokens = math.isqrt(index.numel())
    return table[index.cpu().reshape(tokens, tokens)].permute(2, 0, 1)


def in_windows(scores: Tensor, sides: Sequence[int], place: Place, doubt: float = 0.0) -> PositionAttention:
    """Of a layer that attends within windows: what a window does that the edge of the image does not cut."""
    grid = AttentionGrid(tuple(sides), Sites.everywhere(2))
    notes = [f"in windows of {'x'.join(map(str, sides))}"]
    shift = next(place.held("shift_size"), 0)
    if max(shift) if isinstance(shift, Sequence) else shift:
        notes.append("shifted windows that the edge of the image cuts also mask pixels, which is not part of this")
    return PositionAttention(scores, grid, dtype_of(place), BIAS, doubt, tuple(notes))


def on_patches(found: Sequence[tuple[Tensor, Any]], place: Place) -> PositionAttention | Unread:
    """The sum of biases, without those of the class token, which comes first."""
    if not found:
        return Unread("it has no term of relative position")
    scores = sum((bias for bias, _ in found), torch.zeros(()))
    grid = AttentionGrid(tuple(found[0][1].window_size), Sites.everywhere(2))
    doubt = 0.0 if len(found) == 1 else UNIT * float(scores.abs().max())
    return PositionAttention(scores[:, 1:, 1:], grid, dtype_of(place), BIAS, doubt, (dropped(1),))


def dtype_of(place: Place) -> torch.dtype:
    """That of the layer's parameters."""
    dtype: torch.dtype = next(place.module.parameters()).dtype
    return dtype


def sides_of_patches(place: Place) -> Sides:
    """The grid of patches of the network that a layer is in.

    Raises:
        UsageError: nothing says what it is (C2A503).
    """
    for patches in place.held("patch_embed"):
        if getattr(patches, "grid_size", None):
            return tuple(patches.grid_size)
        return (math.isqrt(patches.num_patches),) * 2
    raise UsageError("C2A503", f"{place.name}: it attends on every square grid")
