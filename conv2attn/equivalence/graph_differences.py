"""Where two graphs differ, in words: the first node with its module and line, or the constant and its worst number."""

import torch
from torch import Tensor

from conv2attn.equivalence.graph import Graph
from conv2attn.equivalence.nodes import Node
from conv2attn.report import counted


def first_pair(first: Graph, second: Graph) -> tuple[Node, Node] | None:
    """The first nodes at the same place of two graphs that differ."""
    pairs = zip(first.nodes, second.nodes, strict=False)
    return next(((ours, theirs) for ours, theirs in pairs if ours.key != theirs.key), None)


def first_difference(first: Graph, second: Graph) -> str:
    """The first node at which two graphs differ, with its module and its line; empty if they are equal."""
    if pair := first_pair(first, second):
        return describe(*pair)
    longer = max((first.nodes, second.nodes), key=len)
    if len(first.nodes) != len(second.nodes):
        node = longer[min(len(first.nodes), len(second.nodes))]
        return f"{node.label}{node.where} is only in the {'first' if longer is first.nodes else 'second'} network"
    if first.conditions != second.conditions:
        sizes = [", ".join(each.conditions) or "every size" for each in (first, second)]
        return f"the code of the second network is for {sizes[1]}, that of the first for {sizes[0]}"
    return ""


def describe(ours: Node, theirs: Node) -> str:
    """Two nodes that differ, in words."""
    label = f"in the second {theirs.label}"
    if ours.label != theirs.label:
        return f"{label}{theirs.where} stands in place of {ours.label}{ours.where}"
    pairs = zip(ours.constants, theirs.constants, strict=False)
    moved = [second[0] for first, second in pairs if first[1] != second[1]]
    if moved:
        return f"{label}{theirs.where} reads other numbers: {moved[0]} differs"
    return f"{label}{theirs.where} {'has other arguments' if theirs.name else 'differs'}"


def different_constants(first: Graph, second: Graph) -> str:
    """Where two graphs of the same operators read different numbers, the worst place named; empty if nowhere."""
    if len(first.nodes) != len(second.nodes) or first.conditions != second.conditions:
        return ""
    pairs = list(zip(first.nodes, second.nodes, strict=True))
    if any((ours.operator, len(ours.constants)) != (theirs.operator, len(theirs.constants)) for ours, theirs in pairs):
        return ""
    names = [
        (mine[0], other[0])
        for ours, theirs in pairs
        for mine, other in zip(ours.constants, theirs.constants, strict=True)
        if mine[1] != other[1]
    ]
    found = (worst_number(name, first.constant(mine), second.constant(name)) for mine, name in names)
    return next(filter(None, found), "")


def worst_number(name: str, ours: Tensor, theirs: Tensor) -> str:
    """Where two constants differ most, in words; empty where only the signs of zeros or the bits of NaN differ."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{name} is {theirs.dtype} {tuple(theirs.shape)}, not {ours.dtype} {tuple(ours.shape)}"
    wide = torch.complex128 if ours.is_complex() else torch.float64
    first, second = (each.detach().cpu().to(wide) for each in (ours, theirs))
    unequal = (first != second) & ~(first.isnan() & second.isnan())
    if not unequal.any():
        return ""
    away = (first - second).abs().nan_to_num(torch.inf).masked_fill(~unequal, -1.0)
    place = tuple(int(i) for i in torch.unravel_index(away.argmax(), away.shape))
    many = counted(int(unequal.sum()), "number")
    return f"{name} differs in {many}, the worst at {place}: {theirs[place].item()!r}, not {ours[place].item()!r}"
