"""Whether the code that runs is the code that is read: objects of our own classes, with nothing put in their way."""

import types
from collections.abc import Iterator
from functools import cache

from torch import Tensor, nn

from conv2attn.attention import MultiHeadSelfAttention
from conv2attn.attention.encodings import ENCODINGS
from conv2attn.basis import Padding, Sites
from conv2attn.models.conversion.replacement import reparametrisations

KNOWN = (MultiHeadSelfAttention, *ENCODINGS.values(), Padding, Sites)
TRUSTED = ("conv2attn", "torch", "dataclasses", "builtins", "typing")


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
    """The names under which an object, or its class, holds code that conv2attn and torch did not put there.

    What others add to a class of torch under a name that torch looks up nowhere is called by nobody, and no matter.
    """
    kind = type(part)
    yield from (key for key in vars(part) if isinstance(getattr(kind, key, None), types.FunctionType | property))
    for base in kind.__mro__:
        ours = home_of(base) == "conv2attn"
        foreign_names = (
            key for key, held in vars(base).items() if callable(body(held)) and home_of(held) not in TRUSTED
        )
        yield from (key for key in foreign_names if ours or is_special(key) or key in names_that_torch_looks_up())


def body(held: object) -> object:
    """The function behind a property, a static method or a class method; anything else as it is."""
    return held.fget if isinstance(held, property) else getattr(held, "__func__", held)


def home_of(held: object) -> str:
    """The package in which a function or a class was written, whatever it says that it wraps."""
    function = body(held)
    if isinstance(function, types.FunctionType):
        return str(function.__globals__["__name__"]).partition(".")[0]
    return str((function if isinstance(function, type) else type(function)).__module__).partition(".")[0]


def is_special(name: str) -> bool:
    """Whether Python itself looks the name up."""
    return name.startswith("__") and name.endswith("__")


@cache
def names_that_torch_looks_up() -> frozenset[str]:
    """All names and strings in the code of torch.nn.Module."""
    bodies = [body(held) for held in vars(nn.Module).values()]
    waiting = [f.__code__ for f in bodies if isinstance(f, types.FunctionType) and home_of(f) == "torch"]
    names: set[str] = set()
    while waiting:
        code = waiting.pop()
        names |= {*code.co_names, *(const for const in code.co_consts if isinstance(const, str))}
        waiting += [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return frozenset(names)
