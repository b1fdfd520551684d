"""Whether the code that runs is the code that is read: objects of our own classes, with nothing put in their way."""

import types
from collections.abc import Iterator

from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.attention.encodings import ENCODINGS
from conv2attn.basis import Padding, Sites
from conv2attn.models.replacement import reparametrisations

KNOWN = (MultiHeadSelfAttention, *ENCODINGS.values(), Padding, Sites)
TRUSTED = ("conv2attn", "torch", "dataclasses")


def foreign(layer: MultiHeadSelfAttention) -> str:
    """What makes `layer` compute something else than its class does, in words; empty if nothing does.

    Hooks on the layer itself are no part of it: they are compared with those of the other side. Functions of modules
    that somebody replaced, and what lies below torch, are trusted.
    """
    parts = {"": layer, "encoding": layer.encoding, "padding": layer.padding, "sites": layer.sites}
    for name, part in parts.items():
        if type(part) not in KNOWN:
            return f"{name or 'it'} is {a_kind(part)}, not one of conv2attn's own"
        replaced = next(methods_in_the_way(part), None)
        if replaced is not None:
            return f"{name + '.' if name else ''}{replaced} was replaced"
    for part in (layer, layer.encoding):
        for key, held in [*vars(part).items(), *part._parameters.items()]:
            if isinstance(held, Tensor) and (type(held) is not nn.Parameter or key not in part._parameters):
                return f"{key} is {a_kind(held)}, not a parameter"
    if reparametrisations(layer) or reparametrisations(layer.encoding):
        return "a weight is computed by a hook before each call"
    return ""


def a_kind(held: object) -> str:
    """The class of something, with its article."""
    kind = type(held).__name__
    return f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind}"


def methods_in_the_way(part: object) -> Iterator[str]:
    """The names under which an object, or its class, holds a function that conv2attn and torch did not put there."""
    kind = type(part)
    yield from (key for key in vars(part) if isinstance(getattr(kind, key, None), types.FunctionType | property))
    for base in kind.__mro__:
        functions = ((key, held) for key, held in vars(base).items() if isinstance(held, types.FunctionType))
        yield from (key for key, held in functions if home_of(held) not in TRUSTED)


def home_of(function: types.FunctionType) -> str:
    """The package in which a function was written, whatever it says that it wraps."""
    return str(function.__globals__["__name__"]).partition(".")[0]
