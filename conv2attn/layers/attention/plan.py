"""A layer as plain data, from which it is rebuilt with a state dict. The plan includes frozen positions."""

from dataclasses import asdict
from typing import Any

import torch

from conv2attn.errors import UsageError
from conv2attn.layers.attention.encoding import Encoding
from conv2attn.layers.attention.layer import MultiHeadSelfAttention
from conv2attn.theory.basis import Padding, Sites
from conv2attn.theory.score_terms import ScoreTerms

PLAN_SIZES = ("d_in", "d_out", "d_head", "d_key", "groups")
PLAN_NUMBERS = (*PLAN_SIZES, "stride_by", "engine", "dropout")
PLAN_PARTS = ("value", "output", "bias")


def to_plan(layer: MultiHeadSelfAttention) -> dict[str, Any]:
    """The arguments of the layer: numbers, strings, lists and dictionaries only."""
    encoding, operators = layer.encoding, layer.encoding.operators()
    factored = layer.value is not None or layer.output is not None
    return {
        **{key: getattr(layer, key) for key in PLAN_NUMBERS},
        **{key: getattr(layer, key) is not None for key in PLAN_PARTS},
        "kernel_size": None if factored or layer.kernel_size is None else list(layer.kernel_size),
        "transposed": not factored and layer.transposed,
        "terms": str(layer.terms),
        "affine": layer.query_bias is not None or layer.key_bias is not None,
        "encoding": operators.name,
        "positions": operators.sizes,
        "fixed": encoding.fixed(),
        "padding": asdict(layer.image_padding),
        "sites": asdict(layer.sites),
        "name": layer.name,
    }


def from_plan(plan: dict[str, Any]) -> MultiHeadSelfAttention:
    """A layer with these arguments, its parameters on the meta device: load a state dict into it by assignment.

    Raises:
        UsageError: a value of the plan is not a number or out of range (C2A001, C2A007), or no layer has these
            settings.
        KeyError, TypeError: the plan lacks an entry, or an entry has a wrong type.
    """
    arguments = {key: plan[key] for key in (*PLAN_NUMBERS, *PLAN_PARTS, "terms", "affine", "transposed")}
    for key in PLAN_SIZES:
        checked_whole(arguments[key], least=1)
    with torch.device("meta"):
        vectors = ScoreTerms.of(plan["terms"]).vr
        encoding = Encoding.from_plan(plan["encoding"], plan["positions"], plan["fixed"], vectors)
        axes = encoding.dimensions
        kernel_size = plan["kernel_size"] and whole_per_axis(plan["kernel_size"], axes, "kernel_size")
        before, after, spacing = (
            whole_per_axis(plan["padding"][key], axes, key) for key in ("before", "after", "spacing")
        )
        sites = Sites(*(whole_per_axis(plan["sites"][key], axes, key) for key in ("stride", "before", "after")))
        padding = Padding(before, after, plan["padding"]["mode"], spacing)
        layer = MultiHeadSelfAttention(
            encoding=encoding, padding=padding, sites=sites, kernel_size=kernel_size, **arguments
        )
    layer.name = str(plan["name"])
    return layer


def whole_per_axis(numbers: Any, axes: int, key: str) -> tuple[int, ...]:
    """One whole number per axis; steps are at least 1."""
    if len(numbers) != axes:
        raise UsageError(
            "C2A007", f"{key}={numbers!r} is not a number for each of {axes} axes", "Pass one number for each axis."
        )
    return tuple(
        checked_whole(number, least=1 if key in ("stride", "spacing", "kernel_size") else None) for number in numbers
    )


def checked_whole(number: Any, least: int | None) -> int:
    """`number`, if it is an integer of at least `least`."""
    if type(number) is not int or (least is not None and number < least):
        raise UsageError(
            "C2A001",
            f"{number!r} is not a whole number{'' if least is None else f' from {least}'}",
            "Pass a whole number within these limits.",
        )
    return number
