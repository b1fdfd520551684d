"""A layer as plain data: what, with a state dict, rebuilds it."""

from dataclasses import asdict
from typing import Any

import torch

from conv2attn.attention.encodings import ENCODINGS
from conv2attn.attention.layer import MultiHeadSelfAttention
from conv2attn.basis import Padding, Sites
from conv2attn.errors import UsageError

SIZES = ("d_in", "d_out", "d_head", "d_key", "groups")
NUMBERS = (*SIZES, "stride_by", "engine")
PARTS = ("value", "output", "bias", "content_bias")


def to_plan(layer: MultiHeadSelfAttention) -> dict[str, Any]:
    """The arguments of the layer: numbers, strings, lists and dictionaries only."""
    return {
        **{key: getattr(layer, key) for key in NUMBERS},
        **{key: getattr(layer, key) is not None for key in PARTS},
        "content": layer.query is not None and layer.key is not None,
        "content_position": layer.position_key is not None,
        "content_linear": layer.query_bias is not None or layer.key_bias is not None,
        "encoding": type(layer.encoding).__name__.removesuffix("Encoding").lower(),
        "positions": layer.encoding.arguments(),
        "padding": asdict(layer.padding),
        "sites": asdict(layer.sites),
        "name": layer.name,
        "trained_positions": any(parameter.requires_grad for parameter in layer.encoding.parameters()),
    }


def from_plan(plan: dict[str, Any]) -> MultiHeadSelfAttention:
    """A layer with these arguments, its parameters on the meta device: load a state dict into it by assignment.

    Raises:
        UsageError: a number of the plan is none, or out of range (C2A001, C2A007), or the layer cannot be so.
        KeyError, TypeError: something is missing from the plan, or not what a plan has there.
    """
    arguments = {key: plan[key] for key in (*NUMBERS, *PARTS, "content", "content_position")}
    arguments["content_linear"] = plan.get("content_linear", False)
    for key in SIZES:
        whole(arguments[key], least=1)
    with torch.device("meta"):
        encoding = ENCODINGS[plan["encoding"]].from_arguments(plan["positions"])
        encoding.requires_grad_(plan["trained_positions"])
        axes = encoding.dimensions
        before, after, spacing = (per_axis(plan["padding"][key], axes, key) for key in ("before", "after", "spacing"))
        sites = Sites(*(per_axis(plan["sites"][key], axes, key) for key in ("stride", "before", "after")))
        padding = Padding(before, after, plan["padding"]["mode"], spacing)
        layer = MultiHeadSelfAttention(encoding=encoding, padding=padding, sites=sites, **arguments)
    layer.name = str(plan["name"])
    return layer


def per_axis(numbers: Any, axes: int, key: str) -> tuple[int, ...]:
    """A whole number for each axis; at least 1 of what is a step."""
    if len(numbers) != axes:
        raise UsageError("C2A007", f"{key}={numbers!r} is not a number for each of {axes} axes")
    return tuple(whole(number, least=1 if key in ("stride", "spacing") else None) for number in numbers)


def whole(number: Any, least: int | None) -> int:
    """`number`, if it is whole and not less than `least`."""
    if type(number) is not int or (least is not None and number < least):
        raise UsageError("C2A001", f"{number!r} is not a whole number{'' if least is None else f' from {least}'}")
    return number
