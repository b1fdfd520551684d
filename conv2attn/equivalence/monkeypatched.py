"""Whether a layer was monkeypatched: its parts must be of conv2attn's own classes, and no method of theirs replaced."""

import types
from collections.abc import Iterator

from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.attention.encodings import ENCODINGS
from conv2attn.basis import Padding, Sites
from conv2attn.equivalence.arguments import a_kind
from conv2attn.models.conversion.replacement import reparametrisations

KNOWN = (MultiHeadSelfAttention, *ENCODINGS.values(), Padding, Sites)
TRUSTED = ("conv2attn", "torch", "dataclasses", "builtins", "typing")


def monkeypatch_of(layer: MultiHeadSelfAttention) -> str:
    """The part of `layer` that was replaced, so that it may compute something else than its class; empty if none was.

    Hooks on the layer itself belong to the context, which is compared as a graph. Functions of modules that somebody
    replaced, torch's own classes, and the code below torch, are trusted.
    """
    parts = {"": layer, "encoding": layer.encoding, "padding": layer.padding, "sites": layer.sites}
    for name, part in parts.items():
        if type(part) not in KNOWN:
            return f"{name or 'it'} is {a_kind(part)}, not one of conv2attn's own"
        replaced = next(replaced_methods(part), None)
        if replaced is not None:
            return f"{name + '.' if name else ''}{replaced} was replaced"
    for part in (layer, layer.encoding):
        for key, held in [*vars(part).items(), *part._parameters.items()]:
            if isinstance(held, Tensor) and (type(held) is not nn.Parameter or key not in part._parameters):
                return f"{key} is {a_kind(held)}, not a parameter"
    if reparametrisations(layer) or reparametrisations(layer.encoding):
        return "a weight is computed by a hook before each call"
    return ""


def replaced_methods(part: object) -> Iterator[str]:
    """The names under which an object, or a class of conv2attn that it is of, holds code of others."""
    kind = type(part)
    yield from (key for key in vars(part) if isinstance(getattr(kind, key, None), types.FunctionType | property))
    for base in kind.__mro__:
        if package_of(base) == "conv2attn":
            held = ((key, each) for key, each in vars(base).items() if callable(function_of(each)))
            yield from (key for key, each in held if package_of(each) not in TRUSTED)


def function_of(held: object) -> object:
    """The function behind a property, a static method or a class method; anything else as it is."""
    return held.fget if isinstance(held, property) else getattr(held, "__func__", held)


def package_of(held: object) -> str:
    """The package in which a function or a class was written, whatever it claims to wrap."""
    function = function_of(held)
    if isinstance(function, types.FunctionType):
        return str(function.__globals__["__name__"]).partition(".")[0]
    return str((function if isinstance(function, type) else type(function)).__module__).partition(".")[0]
