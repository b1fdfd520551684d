"""The first difference that code can see between what two networks return, and leave in what they were given."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.equality.bits import same_bits
from conv2attn.equality.calls import Returned

BESIDE = ("the first network with its layers", "the second network")


def difference_in_words(first: Returned, second: Returned, names: tuple[str, str] = BESIDE) -> str:
    """The first difference that code can see between two results, in words; empty if there is none."""
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
    """The first difference between two parts of results, in words."""
    if type(first) is not type(second):
        return f"{where} is a {type(second).__name__}, not a {type(first).__name__}"
    if isinstance(first, Tensor):
        if first.is_nested or first.layout != torch.strided or first.is_quantized:
            return "" if first is second else f"{where} is a tensor that is not dense"
        for key in ("shape", "dtype", "device", "layout", "requires_grad"):
            if getattr(first, key) != getattr(second, key):
                return f"{where} has {key} {getattr(second, key)}, not {getattr(first, key)}"
        if first.numel() and first.stride() != second.stride():
            return f"{where} has strides {second.stride()}, not {first.stride()}"
        return "" if same_numbers(first, second) else f"{where} has other numbers"
    if isinstance(first, Mapping):
        if list(first) != list(second):
            return f"{where} has the keys {list(second)}, not {list(first)}"
        pairs = ((f"{where}[{key!r}]", first[key], second[key]) for key in first)
    elif isinstance(first, (list, tuple)):
        if len(first) != len(second):
            return f"{where} has {len(second)} parts, not {len(first)}"
        pairs = ((f"{where}[{at}]", *both) for at, both in enumerate(zip(first, second, strict=True)))
    elif hasattr(first, "__dict__") and not isinstance(first, (nn.Module, type)):
        return difference_in(where, vars(first), vars(second))
    else:
        return "" if repr(first) == repr(second) or isinstance(first, nn.Module) else f"{where} is {second!r}"
    return next(filter(None, (difference_in(*each) for each in pairs)), "")


def same_numbers(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors hold the same numbers, the sign of zero included; any NaN is any other."""
    if same_bits(first, second):
        return True
    if not (first.is_floating_point() or first.is_complex()):
        return False
    known = ~first.isnan() if not first.is_complex() else torch.ones_like(first, dtype=torch.bool)
    return torch.equal(first.isnan(), second.isnan()) and same_bits(first[known], second[known])
