"""The parts of network outputs: nested tuples, lists, mappings and dataclasses, taken apart by path.

`{"logits": y, "loss": None}` has the parts `("output['logits']", y)` and `("output['loss']", None)`.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from conv2attn.errors import UnsupportedError

PLAIN_KINDS = (type(None), str, bytes, bool, int, float, complex, torch.dtype, torch.device, torch.Size)
DEEPEST = 64  # tuples, lists and mappings around a tensor; torch's own tree walk allows some hundred


def output_parts(output: Any, where: str = "output", around: tuple[int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """The parts of nested tuples, lists and mappings, each with the path to it; empty ones are parts themselves.

    Args:
        around: the ids of the containers of `output`.
    Raises:
        UnsupportedError: a part contains itself, is nested too deep, or raises when its items are read (C2A407).
    """
    try:
        items = items_of(output)
    except Exception as error:  # the code of a mapping may raise anything
        raise not_walked(output, f"has items that raise {type(error).__name__}") from error
    if items is None:
        yield where, output
        return
    if id(output) in around:
        raise not_walked(output, "holds itself")
    if len(around) == DEEPEST:
        raise not_walked(output, f"is nested more than {DEEPEST} deep")
    for key, item in items:
        yield from output_parts(item, f"{where}[{key}]", (*around, id(output)))


def not_walked(output: Any, why: str) -> UnsupportedError:
    """The error on an output whose parts cannot be walked."""
    sentence = f"an output of a network {why} ({type(output).__name__})"
    return UnsupportedError("C2A407", sentence, "Return tensors, or tuples, lists and mappings of tensors.")


def items_of(output: Any) -> list[tuple[str, Any]] | None:
    """The items of a tuple, list, mapping or dataclass, each with its key as text; None if empty or of another type.

    A key that is not a plain value is named by its index, since other keys may have the same text.
    """
    if isinstance(output, Mapping) and output:
        return [
            (repr(key) if type(key) in PLAIN_KINDS else f"key {place}", item)
            for place, (key, item) in enumerate(output.items())
        ]
    if isinstance(output, list | tuple) and output:
        return [(str(index), item) for index, item in enumerate(output)]
    if dataclasses.is_dataclass(output) and not isinstance(output, type):
        fields = ((repr(each.name), getattr(output, each.name)) for each in dataclasses.fields(output))
        return [(name, item) for name, item in fields if item is not None]  # None: an unset field
    return None


def dense_parts(output: Any) -> Iterator[tuple[str, Tensor]]:
    """The dense tensors in an output, each with the path to it."""
    return ((where, part) for where, part in output_parts(output) if is_dense(part))


def is_dense(thing: object) -> bool:
    """Whether something is a tensor whose numbers can be read one by one: not sparse, quantised, nested or on meta."""
    if not isinstance(thing, Tensor):
        return False
    try:  # fake tensors and other subclasses have no numbers; a class may raise anything
        if thing.is_nested or thing.layout != torch.strided or thing.is_quantized or thing.is_meta:
            return False
        return len(thing.detach().reshape(-1)[:1].tolist()) == min(thing.numel(), 1)
    except Exception:
        return False
