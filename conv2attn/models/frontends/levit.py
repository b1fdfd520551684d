"""LeViT: a bias for each distance along the axes."""

import math

from conv2attn.basis import AttentionGrid, Sites
from conv2attn.models.frontends.registry import relative
from conv2attn.models.positions.bias_tables import BIAS, parameter_dtype
from conv2attn.models.positions.module_places import ModulePlace
from conv2attn.models.positions.position_scores import PositionAttention


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
    biases, index = module.attention_biases.detach().double().cpu(), module.attention_bias_idxs.cpu()
    sides = getattr(module, "resolution", math.isqrt(index.shape[1]))
    keys = (sides, sides) if isinstance(sides, int) else tuple(sides)
    stride = 1
    if index.shape[0] < index.shape[1]:
        stride = next(s for part in module.modules() if isinstance(s := getattr(part, "stride", None), int))
    grid = AttentionGrid(keys, Sites((stride, stride), (0, 0), (0, 0)))
    return PositionAttention(biases[:, index], grid, parameter_dtype(place), BIAS)
