"""The first visible difference between the results of two networks, and between their inputs after the call."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from conv2attn.equality.calls import Returned
from conv2attn.equality.output_parts import is_dense
from conv2attn.equality.twins.bits import same_numbers

BESIDE = ("the first network with its layers", "the second network")
Parts = list[tuple[str, Any, Any]]


def difference_in_words(first: Returned, second: Returned, names: tuple[str, str] = BESIDE) -> str:
    """The first difference visible to code between two results, in words; empty if there is none."""
    if first.failure or second.failure:
        if first.failure == second.failure:
            return ""
        ours, theirs = (f"raises {each.failure}" if each.failure else "runs" for each in (first, second))
        return f"{names[1]} {theirs}, and {names[0]} {ours}"
    for what, ours, theirs in (("output", first.output, second.output), ("input", first.image, second.image)):
        if sentence := difference_in(what, ours, theirs):
            return sentence
    return ""


def difference_in(where: str, first: Any, second: Any) -> str:
    """The first difference between two parts of results, in words; empty if there is none.

    An object may contain itself, and objects may form chains of any length. So each pair is compared once, and pairs
    still to be compared wait in a list, not on the call stack.
    """
    waiting: Parts = [(where, first, second)]
    # By identity, with references to the objects: a mapping may create its values anew, and the id of a deleted object
    # may be reused.
    compared = dict[tuple[int, int], tuple[Any, Any]]()
    while waiting:
        where, first, second = waiting.pop()
        if (id(first), id(second)) in compared:
            continue
        compared[id(first), id(second)] = first, second
        try:
            found = difference_or_parts(where, first, second)
        except Exception as error:  # the code of a class may raise anything
            return f"{where} is a {type(first).__name__} that cannot be compared: {type(error).__name__}"
        if isinstance(found, str):
            return found
        waiting += reversed(found)
    return ""


def difference_or_parts(where: str, first: Any, second: Any) -> str | Parts:
    """The difference between two values themselves, in words, or otherwise their parts to compare."""
    if type(first) is not type(second):
        return f"{where} is a {type(second).__name__}, not a {type(first).__name__}"
    if isinstance(first, Tensor):
        return difference_of_tensors(where, first, second) or []
    if isinstance(first, (Mapping, list, tuple)) and len(first) != len(second):
        return f"{where} has {len(second)} parts, not {len(first)}"
    if isinstance(first, Mapping):
        # Keys are compared as values: a lookup by another tensor with the same numbers would fail.
        pairs = [*zip(first.items(), second.items(), strict=True)]
        keys: Parts = [(f"a key of {where}", ours, theirs) for (ours, _), (theirs, _) in pairs]
        return [*keys, *((f"{where}[{key!r}]", ours, theirs) for (key, ours), (_, theirs) in pairs)]
    if isinstance(first, (list, tuple)):
        return [(f"{where}[{at}]", *both) for at, both in enumerate(zip(first, second, strict=True))]
    if hasattr(first, "__dict__") and not isinstance(first, (nn.Module, type)):
        return [(where, vars(first), vars(second))]
    return [] if repr(first) == repr(second) or isinstance(first, nn.Module) else f"{where} is {second!r}"


def difference_of_tensors(where: str, first: Tensor, second: Tensor) -> str:
    """The first difference between two tensors of one class, in words; empty if there is none."""
    if first is second:
        return ""
    if not (is_dense(first) and is_dense(second)):
        return f"{where} is a tensor whose numbers cannot be read one by one"
    for key in ("shape", "dtype", "device", "requires_grad"):
        if getattr(first, key) != getattr(second, key):
            return f"{where} has {key} {getattr(second, key)}, not {getattr(first, key)}"
    if first.numel() and first.stride() != second.stride():
        return f"{where} has strides {second.stride()}, not {first.stride()}"
    return "" if same_numbers(first, second) else f"{where} has other numbers"
