"""All attention of a network that its parameters alone determine, by the names of its layers."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.basis import AttentionGrid, Sides
from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.models.positions.attention import PositionAttention, Unread
from conv2attn.models.positions.places import Place, kind, places, rule_for

Found = MultiHeadSelfAttention | PositionAttention | Unread
ATTENDS = re.compile("Attention|MHSA|SelfAttn")
"""Names of the classes of layers that attend, as a rule."""
LATER = "content reaches it: only the first layer sees positions alone"


def position_attention(network: nn.Module, grid: Sequence[int] | None = None) -> dict[str, Found]:
    """Attention by position of each layer of `network` that attends, or why it is not known.

    Layers of this project that read no content stand for themselves. Nothing is run and no library imported: layers
    are known by the names of their classes.

    Args:
        grid: sides of the tokens, for layers whose parameters fit several: ours, sentences, ConViT's by themselves.
    Raises:
        UsageError: nothing attends (C2A501), or a layer's grid is another, or is not known (C2A503).
    """
    from conv2attn.models.frontends import ENCODERS, RELATIVE  # each family enters its rules when it is imported

    stand = list(places(network, None if grid is None else tuple(grid)))
    names = {place.module: place.name for place in stand}
    found: dict[str, Found] = {}
    reasons: dict[nn.Module, str] = {}
    for place in stand:
        if isinstance(place.module, MultiHeadSelfAttention):
            found[place.name] = of_own(place)
        elif rule := rule_for(place.module, RELATIVE):
            found[place.name] = on_its_grid(rule(place), place)
        elif rule := rule_for(place.module, ENCODERS):
            try:
                layer, read = rule(place)
                found[names[layer]], reasons[place.module] = on_its_grid(read, place), LATER
            except UnsupportedError as error:
                reasons[place.module] = error.found
    everything = dict(unread(stand, reasons)) | found
    if not everything:
        raise UsageError("C2A501", f"{type(network).__name__} has no layer that is known to attend")
    return {place.name or "(root)": everything[place.name] for place in stand if place.name in everything}


def of_own(place: Place) -> MultiHeadSelfAttention | PositionAttention:
    """A layer of this project as it is; where it reads content too, its scores `v . r_delta` on the grid.

    Raises:
        UsageError: nothing says how large the grid is (C2A503).
    """
    layer = place.module
    assert isinstance(layer, MultiHeadSelfAttention)
    if not layer.has_content:
        return layer
    if place.grid is None:
        raise UsageError("C2A503", f"{place.name}: a layer attends on every grid")
    return position_part(layer, place.grid)


@torch.no_grad()
def position_part(layer: MultiHeadSelfAttention, sides: Sides) -> PositionAttention:
    """The softmax of `v . r_delta` alone, for inputs with these sides: what a layer attends to in an image of zeros."""
    sites = layer.sites if layer.stride_by == "queries" else layer.sites.without_stride()
    grid = AttentionGrid(layer.image_padding.sides(sides), sites)
    grid = replace(grid, device=layer.like.device)
    scores = layer.encoding.operators().scores(grid, grid.every_query(), torch.float64)[0].cpu()
    dtype = layer.like.dtype
    return PositionAttention(scores, grid, dtype, "its relative encoding, with all terms of content held at zero")


def on_its_grid(read: PositionAttention | Unread, place: Place) -> PositionAttention | Unread:
    """A layer as it was read, unless its grid is not the one that the user gave.

    Raises:
        UsageError: it is not (C2A503).
    """
    if isinstance(read, PositionAttention) and place.grid not in (None, read.grid.keys):
        own = "x".join(map(str, read.grid.keys))
        raise UsageError("C2A503", f"{place.name}: its parameters are those of a grid {own}", "Leave out the grid.")
    return read


def unread(stand: Sequence[Place], reasons: Mapping[nn.Module, str]) -> Iterator[tuple[str, Unread]]:
    """Every layer that attends by its name, innermost, with the reason why its parameters alone do not say to what."""
    attending = [place for place in stand if ATTENDS.search(type(place.module).__name__)]
    outer = {holder for place in attending for holder in place.holders}
    for place in attending:
        if place.module not in outer:
            told = next((reasons[holder] for holder in place.holders if holder in reasons), None)
            yield place.name, Unread(told or f"there is no rule that reads positions alone off a {kind(place.module)}")
