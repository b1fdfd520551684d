"""What differs between two operators on the same tensors, in words."""

from collections.abc import Sequence

import torch
from torch import Tensor

from conv2attn.equality.worlds.records import Record

INDICES = "output channel", "input"
SILENT = {"momentum", "cudnn_enabled", "cudnn_enable", "benchmark", "deterministic"}
"""Numbers of operators that change no output."""


def difference_of(first: Record | None, second: Record) -> str:
    """What differs between two operators on the same tensors, in words; empty if it is not known."""
    if first is None:
        return ""
    if first.operator != second.operator:
        return f"{second.operator.strip('_')}, where the first network has {first.operator.strip('_')}"
    for name, value in second.numbers.items():
        if name not in SILENT and name in first.numbers and value != first.numbers[name]:
            return f"its {name} is {value}, not {first.numbers[name]}"
    pairs = [(name, first.constants[name], t) for name, t in second.constants.items() if name in first.constants]
    gaps = {name: furthest(one, two) for name, one, two in pairs if one.shape == two.shape and one.numel()}
    gaps = {name: gap for name, gap in gaps.items() if gap[0] > 0}
    if not gaps:
        return ""
    name = max(gaps, key=lambda name: gaps[name][0])
    return f"its {name} differs most at {indices_in_words(gaps[name][1])}"


def furthest(one: Tensor, two: Tensor) -> tuple[float, tuple[int, ...]]:
    """The largest difference of two tensors, relative to the largest number, and its index."""
    gap = (one.cpu().double() - two.cpu().double()).abs().nan_to_num(torch.inf)
    index = torch.unravel_index(gap.argmax(), gap.shape)
    scale = float(one.abs().max()) or 1.0
    return float(gap.max()) / scale, tuple(int(i) for i in index)


def indices_in_words(index: Sequence[int]) -> str:
    """The index of a weight; the axes of a kernel follow those of channels."""
    named = [f"{name} {i}" for name, i in zip(INDICES, index, strict=False)]
    return ", ".join([*named, *([f"tap {tuple(index[2:])}"] if len(index) > 2 else [])]) or "its only number"
