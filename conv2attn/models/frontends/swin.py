"""Swin and Swin v2: a bias for each displacement within a window."""

import torch

from conv2attn.bounds import gamma
from conv2attn.models.frontends.registry import relative
from conv2attn.models.positions.bias_tables import biases_by_index, in_windows, table_biases
from conv2attn.models.positions.module_places import ModulePlace
from conv2attn.models.positions.position_scores import UNIT, PositionAttention


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
    first, bias, second = (w.detach().double().cpu() for w in (layers[0].weight, layers[0].bias, layers[2].weight))
    coordinates = module.relative_coords_table.double().cpu().flatten(0, -2)
    table = torch.relu(coordinates @ first.T + bias) @ second.T
    sizes = (coordinates.abs() @ first.abs().T + bias.abs()) @ second.abs().T
    # the slope of 16 sigmoid is at most 4; its own rounding is at most four units of its value
    uncertainty = 4 * gamma(sum(second.shape) + 8, UNIT) * float(sizes.max()) + 64 * UNIT
    scores = 16 * torch.sigmoid(biases_by_index(table, module.relative_position_index))
    return in_windows(scores, module.window_size, place, uncertainty)
