"""Detects attention whose instance was changed, so that it may compute something else than its class."""

import types
from collections.abc import Iterator

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from conv2attn.equality.failures import a_kind
from conv2attn.layers.attention import Encoding, MultiHeadSelfAttention
from conv2attn.layers.theorem.convolution import overrides_torch
from conv2attn.networks.conversion.computed_weights import reparametrisations
from conv2attn.theory.basis import (
    FAMILIES,
    Padding,
    Sites,
)

OWN_CLASSES = (MultiHeadSelfAttention, Encoding, *FAMILIES.values(), Padding, Sites)


def monkeypatch_of(layer: MultiHeadSelfAttention) -> str:
    """The replaced part of `layer`, because of which it may differ from its class; empty if none was replaced.

    Hooks on the layer itself belong to the context, which is compared as a graph. The code of classes and modules,
    conv2attn's own included, is trusted: each certificate lists this premise.
    """
    parts = {"": layer, "encoding": layer.encoding, "padding": layer.image_padding, "sites": layer.sites}
    for name, part in parts.items():
        if reason := replacement_in(name, part):
            return reason
    if reason := replacement_in("encoding", layer.positions):
        return reason
    # Weight and bias are plain tensors if hooks compute them, and those hooks are known. Any other plain tensor instead
    # of a parameter was put there by a user.
    computed = {"weight", "bias"} if reparametrisations(layer) else set[str]()
    for part in (layer, layer.encoding):
        for key, value in [*vars(part).items(), *part._parameters.items()]:
            plain = key in part._parameters and isinstance(value, nn.Parameter) and not overrides_torch(type(value))
            if isinstance(value, Tensor) and not plain and not (part is layer and key in computed):
                return f"{key} is {a_kind(value)}, not a parameter"
    if reparametrisations(layer.encoding) or is_parametrized(layer.encoding):
        return "positions are computed before each call"
    if missing := next((name for name in ("weight", "value", "output", "bias") if not hasattr(layer, name)), ""):
        return f"{missing} was deleted"
    return ""


def replacement_in(name: str, part: object) -> str:
    """The reason why this part is not conv2attn's own code; empty if it is."""
    if class_of(part) not in OWN_CLASSES:
        return f"{name or 'it'} is {a_kind(part)}, not one of conv2attn's own"
    replaced = next(replaced_methods(part), None)
    return "" if replaced is None else f"{name + '.' if name else ''}{replaced} was replaced"


def class_of(part: object) -> type:
    """The class of an object, without the subclass that a parametrisation of torch adds."""
    kind = type(part)
    if not isinstance(part, nn.Module) or not is_parametrized(part):
        return kind
    laid = {key for key in vars(kind) if not key.startswith("__")}
    return kind.__bases__[0] if laid <= {*part.parametrizations} else kind  # type: ignore[misc]


def replaced_methods(part: object) -> Iterator[str]:
    """The names of methods and properties of the class that this instance overrides by its own attributes."""
    kind = type(part)
    yield from (key for key in vars(part) if isinstance(getattr(kind, key, None), types.FunctionType | property))
