"""A layer as plain data: what, with a state dict, rebuilds it."""

from dataclasses import asdict
from typing import Any

import torch

from conv2attn.attention.encodings import ENCODINGS
from conv2attn.attention.layer import MultiHeadSelfAttention
from conv2attn.basis import Padding, Sites

NUMBERS = ("d_in", "d_out", "d_head", "d_key", "groups", "stride_by", "engine")
PARTS = ("value", "output", "bias", "content_bias")


def to_plan(layer: MultiHeadSelfAttention) -> dict[str, Any]:
    """The arguments of the layer: numbers, strings, lists and dictionaries only."""
    return {
        **{key: getattr(layer, key) for key in NUMBERS},
        **{key: getattr(layer, key) is not None for key in PARTS},
        "content": layer.query is not None and layer.key is not None,
        "content_position": layer.position_key is not None,
        "encoding": type(layer.encoding).__name__.removesuffix("Encoding").lower(),
        "positions": layer.encoding.arguments(),
        "padding": asdict(layer.padding),
        "sites": asdict(layer.sites),
        "name": layer.name,
        "trained_positions": any(parameter.requires_grad for parameter in layer.encoding.parameters()),
    }


def from_plan(plan: dict[str, Any]) -> MultiHeadSelfAttention:
    """A layer with these arguments, its parameters on the meta device: load a state dict into it by assignment."""
    arguments = dict(plan)
    sites = Sites(**{key: tuple(item) for key, item in arguments.pop("sites").items()})
    padding = arguments.pop("padding")
    mode = padding.pop("mode") if isinstance(padding, dict) else ""
    padding = Padding(**{key: tuple(item) for key, item in padding.items()}, mode=mode)
    kind, positions = arguments.pop("encoding"), arguments.pop("positions")
    name, trained = arguments.pop("name"), arguments.pop("trained_positions")
    with torch.device("meta"):
        encoding = ENCODINGS[kind].from_arguments(positions).requires_grad_(trained)
        layer = MultiHeadSelfAttention(encoding=encoding, padding=padding, sites=sites, **arguments)
    layer.name = name
    return layer
