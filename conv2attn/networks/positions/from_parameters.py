"""Attention by position alone that is read from parameters: for layers of this project and of ConViT.

Other layers are measured in a run, by `networks/reading/by_position.py`.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from conv2attn.arguments import foreign_code
from conv2attn.errors import UsageError
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.theory.basis import AttentionGrid, Sides, Sites, moved_to
from conv2attn.theory.bounds import gamma


@final
@dataclass(frozen=True, eq=False)
class PositionAttention:
    """Attention of the heads of one layer by position alone: the softmax of `scores`.

    Args:
        scores: (heads, queries, keys + extra), in float64; the queries are pixels.
        grid: the pixels.
        dtype: dtype of the parameters.
        how: the source of the scores, and the terms set to zero.
        uncertainty: bound on the rounding error of a score in float64.
        notes: remarks for reports.
        extra: number of keys that are not pixels (class tokens, registers), the last columns.
    Raises:
        UsageError: the scores do not fit the grid (C2A503).
    """

    scores: Tensor
    grid: AttentionGrid
    dtype: torch.dtype
    how: str
    uncertainty: float = 0.0
    notes: tuple[str, ...] = ()
    extra: int = 0

    def __post_init__(self) -> None:
        queries, keys = self.grid.shape
        if self.scores.shape[1:] != (queries, keys + self.extra):
            actual, expected = tuple(self.scores.shape[1:]), (queries, keys + self.extra)
            raise UsageError(
                "C2A503",
                f"scores of {actual} (queries, keys) are not those of a grid with {expected}",
                "Pass the --grid that the scores belong to.",
            )

    @property
    def attention(self) -> Tensor:
        """The probabilities, (heads, queries, keys + extra), in float64."""
        return torch.softmax(self.scores, -1)


@final
@dataclass(frozen=True)
class Unread:
    """A layer whose attention was not determined, and the reason."""

    reason: str


def leading_note(tokens: int) -> tuple[str, ...]:
    """The note on leading tokens that are not pixels, if there are any."""
    return (f"leading tokens: {tokens}; at their keys every target is 0",) if tokens else ()


def windows_note(sides: Sequence[int] | None = None, placed: bool = False) -> str:
    """The note on a layer that attends in windows, with their sides if they are known."""
    of_sides = f" of {'x'.join(map(str, sides))}" if sides else ""
    where = (
        "measured at the places of its windows in the image; check-span judges one window"
        if placed
        else "judged within one window; no head reads beyond the window's borders"
    )
    return f"in windows{of_sides}: {where}"


LayerAttention = MultiHeadSelfAttention | PositionAttention | Unread
ATTENDS = re.compile("Attention|MHSA|SelfAttn|GPSA")
"""Typical class names of layers that attend."""
ROUNDOFF = 2.0**-53
"""Unit roundoff of float64, in which scores are computed."""
FROM_PARAMETERS = "from parameters, positions alone"
GATED = re.compile(r"(^|\.)convit\.GPSA$")
"""ConViT's kind of layer, in timm and facebookresearch/convit."""


def position_attention(network: nn.Module, grid: Sequence[int] | None = None) -> dict[str, LayerAttention]:
    """Attention by position of this project's layers (those without content are returned themselves) and ConViT's.

    Args:
        grid: sides of the token grid, for layers whose parameters fit several grids.
    Raises:
        UsageError: a layer has another grid, or an unknown one (C2A503).
    """
    sides, attention_by_name = None if grid is None else tuple(grid), dict[str, LayerAttention]()
    for name, module in network.named_modules():
        if isinstance(module, MultiHeadSelfAttention):
            attention_by_name[name or "(root)"] = own_position_attention(name, module, sides)
        elif GATED.search(forward_kind(module)):
            attention_by_name[name or "(root)"] = gated(network, name, module, sides)
    return attention_by_name


def forward_kind(module: nn.Module) -> str:
    """The full name of the class that defines the module's forward; a forward set on the object itself has no class."""
    if "forward" in vars(module):
        return "a forward of its own"
    owner = next(each for each in type(module).__mro__ if "forward" in vars(each))
    return f"{owner.__module__}.{owner.__qualname__}"


@torch.no_grad()
def own_position_attention(
    name: str, layer: MultiHeadSelfAttention, sides: Sides | None
) -> MultiHeadSelfAttention | PositionAttention:
    """A layer of this project itself, or, if it reads content, the softmax of `v . r_delta` alone.

    The latter is its attention in an image of zeros with the sides of the grid.

    Raises:
        UsageError: the size of the grid is unknown (C2A503).
    """
    if not layer.has_content:
        return layer
    if sides is None:
        raise UsageError("C2A503", f"{name or '(root)'}: the layer attends on any grid", "Say which with --grid.")
    asked_at = layer.sites if layer.stride_by == "queries" else layer.sites.without_stride()
    grid = AttentionGrid(layer.image_padding.sides(sides), asked_at)
    scores = moved_to(layer.positions, "cpu").scores(grid, grid.every_query(), torch.float64)[0]
    how = f"{FROM_PARAMETERS}: its relative encoding, with all terms of content set to zero"
    return PositionAttention(scores, grid, layer.like.dtype, how)


# ConViT mixes two softmaxes, of content and of positions, by a gate. A run with all products of content set to zero has
# a uniform softmax of content, and shows only the mixture: the positional softmax alone never multiplies values.
def gated(network: nn.Module, name: str, module: Any, sides: Sides | None) -> PositionAttention | Unread:
    """`softmax(w . (dx, dy, dx^2 + dy^2))`, a quadratic encoding, which a gate mixes with attention to content.

    Raises:
        UsageError: its grid is unknown, or not square (C2A503).
    Source: d'Ascoli et al. 2021, Eqs. 5 to 8; timm, facebookresearch/convit.
    """
    package = forward_kind(module).partition(".")[0]
    for part in module.modules():
        if reason := foreign_code(part, {"torch", "timm", package}):
            return Unread(f"{type(part).__name__} {reason}, so its parameters do not determine its attention")
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
    note = f"gates {gates}: the share of each head's attention; the rest depends on content"
    return PositionAttention(
        scores,
        grid,
        module.pos_proj.weight.dtype,
        f"{FROM_PARAMETERS}: gated positional attention",
        uncertainty,
        (note,),
    )


def own_sides(network: nn.Module, name: str) -> Sides | None:
    """The grid of patches of the network that a layer is in, from the innermost module around it that states it."""
    while name:
        name = name.rpartition(".")[0]
        patches = getattr(network.get_submodule(name), "patch_embed", None)
        if sides := getattr(patches, "grid_size", None):
            return tuple(sides)
        if count := getattr(patches, "num_patches", None):
            return (math.isqrt(count),) * 2
    return None
