"""Swin and Swin v2: a bias for each displacement within a window."""

import torch

from conv2attn.bounds import gamma
from conv2attn.models.frontends.registry import relative
from conv2attn.models.positions.attention import UNIT, PositionAttention
from conv2attn.models.positions.biases import in_windows, looked_up, square
from conv2attn.models.positions.places import Place


@relative("swin_transformer.WindowAttention", "swin_transformer.ShiftedWindowAttention")
def swin(place: Place) -> PositionAttention:
    """A bias for each displacement within a window. Source: Liu et al. 2021, Eq. 4; timm, torchvision, microsoft."""
    return in_windows(looked_up(place.module), place.module.window_size, place)


@relative("modeling_swin.SwinAttention")
def swin_of_transformers(place: Place) -> PositionAttention:
    """Biases of Swin in the package transformers, where a module of its own holds them."""
    part = place.module.relative_position_bias
    return in_windows(looked_up(part), part.window_size, place)


@relative(
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
