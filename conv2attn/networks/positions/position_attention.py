"""All attention of a network that its parameters alone determine, by the names of its layers."""

import re
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import nn

from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.networks.positions.position_rules import (
    ENCODERS,
    RELATIVE,
    ModulePlace,
    PositionAttention,
    Unread,
    check_library_code,
    forward_kind,
    module_places,
    rule_for,
)
from conv2attn.theory.basis import AttentionGrid, moved_to

LayerAttention = MultiHeadSelfAttention | PositionAttention | Unread
ATTENDS = re.compile("Attention|MHSA|SelfAttn|GPSA")
"""Names of the classes of layers that attend, as a rule."""
NO_RULE = "no rule reads positions alone"
AFTER_FIRST = "content reaches it: only the first layer sees positions alone"


def position_attention(network: nn.Module, grid: Sequence[int] | None = None) -> dict[str, LayerAttention]:
    """Attention by position of each layer of `network` that attends, or why it is not known.

    Layers of this project that read no content are returned as they are. Nothing is run and no library imported:
    layers are recognised by the names of their classes.

    Args:
        grid: sides of the tokens, for layers whose parameters fit several: ours, sentences, ConViT's by themselves.
    Raises:
        UsageError: nothing attends (C2A501), or a layer's grid is another, or is not known (C2A503).
    """
    places = list(module_places(network, None if grid is None else tuple(grid)))
    names = {place.module: place.name for place in places}
    attentions: dict[str, LayerAttention] = {}
    reasons: dict[nn.Module, str] = {}
    for place in places:
        try:
            if isinstance(place.module, MultiHeadSelfAttention):
                attentions[place.name] = own_position_attention(place)
            elif rule := rule_for(place.module, RELATIVE):
                check_library_code(place.module.modules(), forward_kind(place.module).partition(".")[0])
                attentions[place.name] = check_grid(rule(place), place)
            elif rule := rule_for(place.module, ENCODERS):
                layer, attention = rule(place)
                if isinstance(attention, PositionAttention):
                    check_library_code(modules_before(layer, place), forward_kind(place.module).partition(".")[0])
                attentions[names[layer]], reasons[place.module] = check_grid(attention, place), AFTER_FIRST
        except UnsupportedError as error:
            reasons[place.module] = error.found
        except AttributeError as error:  # of another version of the library
            reasons[place.module] = f"this version of {forward_kind(place.module)} has no {error.name}"
    layers = dict(undetermined_layers(places, reasons)) | attentions
    if not layers:
        raise UsageError(
            "C2A501",
            f"{type(network).__name__} has no layer that is known to attend",
            "Pass --inputs if it attends nevertheless.",
        )
    return {place.name or "(root)": layers[place.name] for place in places if place.name in layers}


def modules_before(layer: nn.Module, encoder: ModulePlace) -> Iterator[nn.Module]:
    """The modules of a layer, those of an encoder that contain it, and the embeddings of the encoder."""
    yield from layer.modules()
    yield from (module for module in encoder.module.modules() if layer in {*module.modules()} - {module})
    if isinstance(embeddings := getattr(encoder.module, "embeddings", None), nn.Module):
        yield embeddings


@torch.no_grad()
def own_position_attention(place: ModulePlace) -> MultiHeadSelfAttention | PositionAttention:
    """A layer of this project as it is; where it reads content too, the softmax of `v . r_delta` alone.

    That is its attention in an image of zeros with the sides of the grid.

    Raises:
        UsageError: nothing says how large the grid is (C2A503).
    """
    layer = place.module
    assert isinstance(layer, MultiHeadSelfAttention)
    if not layer.has_content:
        return layer
    if place.grid is None:
        raise UsageError("C2A503", f"{place.name or '(root)'}: a layer attends on every grid", "Say which with --grid.")
    sites = layer.sites if layer.stride_by == "queries" else layer.sites.without_stride()
    grid = AttentionGrid(layer.image_padding.sides(place.grid), sites)
    scores = moved_to(layer.positions, "cpu").scores(grid, grid.every_query(), torch.float64)[0]
    how = "its relative encoding, with all terms of content held at zero"
    return PositionAttention(scores, grid, layer.like.dtype, how)


def check_grid(attention: PositionAttention | Unread, place: ModulePlace) -> PositionAttention | Unread:
    """`attention`, whose grid is checked against the user's.

    Raises:
        UsageError: the grids differ (C2A503).
    """
    if isinstance(attention, PositionAttention) and place.grid not in (None, attention.grid.keys):
        own_grid = "x".join(map(str, attention.grid.keys))
        raise UsageError(
            "C2A503", f"{place.name}: its parameters are those of a grid {own_grid}", "Leave out the grid."
        )
    return attention


def undetermined_layers(
    places: Sequence[ModulePlace], reasons: Mapping[nn.Module, str]
) -> Iterator[tuple[str, Unread]]:
    """The innermost layers whose class names say that they attend, with the reason why no rule reads them."""
    attending = [place for place in places if ATTENDS.search(type(place.module).__name__)]
    outer = {holder for place in attending for holder in place.holders}
    for place in attending:
        if place.module not in outer:
            around = (place.module, *place.holders)
            reason = next((reasons[each] for each in around if each in reasons), None)
            yield (
                place.name,
                Unread(reason or f"{NO_RULE} from a {forward_kind(place.module)}"),
            )
