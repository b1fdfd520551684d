"""ConViT's gated positional attention."""

import torch

from conv2attn.basis import AttentionGrid, Sites
from conv2attn.bounds import gamma
from conv2attn.errors import UsageError
from conv2attn.models.frontends.registry import relative
from conv2attn.models.positions.bias_tables import parameter_dtype, sides_of_patches
from conv2attn.models.positions.module_places import ModulePlace
from conv2attn.models.positions.position_scores import UNIT, PositionAttention


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
    weight, bias = (each.detach().double().cpu() for each in (module.pos_proj.weight, module.pos_proj.bias))
    scores = (features @ weight.T + bias).permute(2, 0, 1)
    uncertainty = gamma(4, UNIT) * float((features.abs() @ weight.abs().T + bias.abs()).max())
    gates = " ".join(f"{gate:.3f}" for gate in torch.sigmoid(module.gating_param.detach().double()).tolist())
    note = f"gates {gates}: the share that this is of each head's attention; the rest depends on content"
    return PositionAttention(scores, grid, parameter_dtype(place), "gated positional attention", uncertainty, (note,))
