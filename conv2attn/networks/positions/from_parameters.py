"""Attention by position alone that parameters tell and no run does: that of layers of this project, and of ConViT.

Any other layer is asked of a run, `networks/reading/by_position.py`.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from conv2attn.arguments import foreign_code
from conv2attn.errors import UsageError
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.networks.positions.position_attention import PositionAttention, Unread
from conv2attn.theory.basis import AttentionGrid, Sides, Sites, moved_to
from conv2attn.theory.bounds import gamma

LayerAttention = MultiHeadSelfAttention | PositionAttention | Unread
ATTENDS = re.compile("Attention|MHSA|SelfAttn|GPSA")
"""Names of the classes of layers that attend, as a rule."""
ROUNDOFF = 2.0**-53
"""Unit roundoff of float64, in which scores are computed."""
FROM_PARAMETERS = "from parameters, positions alone"
GATED = re.compile(r"(^|\.)convit\.GPSA$")
"""Kinds of layers by ConViT (timm, facebookresearch/convit)."""


def position_attention(network: nn.Module, grid: Sequence[int] | None = None) -> dict[str, LayerAttention]:
    """Attention by position of the layers of this project, which stand for themselves if without content, and ConViT's.

    Args:
        grid: sides of the tokens, for layers whose parameters fit several: ours, ConViT's by themselves.
    Raises:
        UsageError: a layer's grid is another, or is not known (C2A503).
    """
    sides, found = None if grid is None else tuple(grid), dict[str, LayerAttention]()
    for name, module in network.named_modules():
        if isinstance(module, MultiHeadSelfAttention):
            found[name or "(root)"] = own_position_attention(name, module, sides)
        elif GATED.search(forward_kind(module)):
            found[name or "(root)"] = gated(network, name, module, sides)
    return found


def forward_kind(module: nn.Module) -> str:
    """The full name of the class that defines the module's forward; a forward of the object itself has no class."""
    if "forward" in vars(module):
        return "a forward of its own"
    owner = next(each for each in type(module).__mro__ if "forward" in vars(each))
    return f"{owner.__module__}.{owner.__qualname__}"


@torch.no_grad()
def own_position_attention(
    name: str, layer: MultiHeadSelfAttention, sides: Sides | None
) -> MultiHeadSelfAttention | PositionAttention:
    """A layer of this project as it is; where it reads content too, the softmax of `v . r_delta` alone.

    That is its attention in an image of zeros with the sides of the grid.

    Raises:
        UsageError: nothing says how large the grid is (C2A503).
    """
    if not layer.has_content:
        return layer
    if sides is None:
        raise UsageError("C2A503", f"{name or '(root)'}: a layer attends on every grid", "Say which with --grid.")
    asked_at = layer.sites if layer.stride_by == "queries" else layer.sites.without_stride()
    grid = AttentionGrid(layer.image_padding.sides(sides), asked_at)
    scores = moved_to(layer.positions, "cpu").scores(grid, grid.every_query(), torch.float64)[0]
    how = f"{FROM_PARAMETERS}: its relative encoding, with all terms of content held at zero"
    return PositionAttention(scores, grid, layer.like.dtype, how)


# ConViT mixes two softmaxes, of content and of positions, by a gate. A run in which products of content are held at
# zero leaves the softmax of content even, and shows the mixture: positions alone multiply no values.
def gated(network: nn.Module, name: str, module: Any, sides: Sides | None) -> PositionAttention | Unread:
    """`softmax(w . (dx, dy, dx^2 + dy^2))`, a quadratic encoding, which a gate mixes with attention to content.

    Raises:
        UsageError: its grid is not known, or is no square (C2A503).
    Source: d'Ascoli et al. 2021, Eqs. 5 to 8; timm, facebookresearch/convit.
    """
    package = forward_kind(module).partition(".")[0]
    for part in module.modules():
        if reason := foreign_code(part, {"torch", "timm", package}):
            return Unread(f"{type(part).__name__} {reason}, so that its parameters do not tell its attention")
    sides = sides or own_sides(network, name)
    if sides is None:
        raise UsageError("C2A503", f"{name}: it attends on every square grid", "Say which with --grid.")
    if len(sides) != 2 or sides[0] != sides[1]:
        reason = f"{name}: its positions are those of a square, not of {'x'.join(map(str, sides))} patches"
        raise UsageError("C2A503", reason, "Pass square images, or a square --grid.")
    grid = AttentionGrid(sides, Sites.everywhere(2))
    rows, columns = grid.displacements().double().unbind(-1)
    features = torch.stack([columns, rows, rows**2 + columns**2], -1)
    weight, bias = (each.detach().cpu().double() for each in (module.pos_proj.weight, module.pos_proj.bias))
    scores = (features @ weight.T + bias).permute(2, 0, 1)
    uncertainty = gamma(4, ROUNDOFF) * float((features.abs() @ weight.abs().T + bias.abs()).max())
    gates = " ".join(f"{gate:.3f}" for gate in torch.sigmoid(module.gating_param.detach().cpu().double()).tolist())
    note = f"gates {gates}: the share that this is of each head's attention; the rest depends on content"
    return PositionAttention(
        scores,
        grid,
        module.pos_proj.weight.dtype,
        f"{FROM_PARAMETERS}: gated positional attention",
        uncertainty,
        (note,),
    )


def own_sides(network: nn.Module, name: str) -> Sides | None:
    """The grid of patches of the network that a layer is in, by the innermost module around it that says so."""
    while name:
        name = name.rpartition(".")[0]
        patches = getattr(network.get_submodule(name), "patch_embed", None)
        if sides := getattr(patches, "grid_size", None):
            return tuple(sides)
        if count := getattr(patches, "num_patches", None):
            return (math.isqrt(count),) * 2
    return None
