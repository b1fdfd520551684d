"""Finds where two networks first differ: module path and source line in both, by equal numbers and not by names.

Every tensor of both has a record. The search walks back through the second network, from the argument that differs. It
stops at tensors that the first network computes too; the operator right after them is the suspect.
"""

import math
from typing import final

import torch
from torch import Tensor

from conv2attn.equality.distances import place_of_largest
from conv2attn.equality.worlds.followed_calls import FollowedCall
from conv2attn.equality.worlds.oracles import Parting
from conv2attn.equality.worlds.records import Record, Twins
from conv2attn.report.result import Number, Part

INDICES = "output channel", "input"
SILENT = {"momentum", "cudnn_enabled", "cudnn_enable", "benchmark", "deterministic"}
"""Numbers of operators that change no output."""


@final
class PartingPlace(Part, frozen=True):
    """The first section in which two networks differ: module and source line in both, and the operator.

    `units` is the difference in units of rounding; `what` says what differs there, and is empty if unknown.
    """

    first: str
    second: str
    operator: str
    units: Number
    what: str = ""

    def in_words(self) -> str:
        """The place in one line."""
        first = f"; the first network has there {self.first}" if self.first not in ("", self.second) else ""
        apart = f" ({self.units:.3g} units of rounding apart)" if math.isfinite(self.units) else ""
        what = f": {self.what}" if self.what else ""
        return f"they differ at {self.operator} of {self.second}{what}{apart}{first}"


def find_place(first: FollowedCall, second: FollowedCall, parting: Parting | None, units: float) -> PartingPlace | None:
    """The first section of the second network that no section of the first matches; None if none is suspect.

    Args:
        parting: where an oracle got new arguments; None if only the outputs differ, by `units`.
    """
    ours, theirs, ends = first.watch.records, second.watch.records, second.watch.ends
    if parting is None:
        ends = [shadow.record for shadow in second.shadows if shadow.record is not None]
    twins = Twins(ours, theirs)

    def placed(beside: Record | None, suspect: Record, otherwise: str = "") -> PartingPlace:
        what = (difference_of(beside, suspect) if beside else "") or otherwise
        return PartingPlace(beside.place if beside else "", suspect.place, suspect.operator.strip("_"), units, what)

    number = twins.first_apart(ends, lambda n: twins.of(n) is not None)
    operator = parting.operator if parting else ""
    if number is not None:
        ends, operator = theirs[number].inputs, theirs[number].operator
    beside = twins.beside(ends, operator)
    # The result of an operator without effect is a tensor of the first network too, so only the next operator seems to
    # differ.
    for n in (idle := [*ends]):
        if beside and twins.of(n) in map(twins.of, theirs[n].inputs):
            idle += theirs[n].inputs
            number = n if theirs[n].operator == beside.operator else number
    # The means of the inputs agree, but the order of their numbers may differ.
    same_operator = number is None or (beside is not None and not difference_of(beside, theirs[number]))
    moved = twins.first_apart(ends, twins.in_order) if same_operator else None
    if moved is not None:
        number, suspect = moved, theirs[moved]
        beside = next((r for r in ours if r.operator == suspect.operator and r.agrees(suspect)), None)
    if number is not None:
        return placed(beside, theirs[number], "" if moved is None else "the same numbers in another order")
    if parting is None:
        # Each output is some tensor of the first network, but one is not its output: it lacks the last operators.
        for p, q in zip(first.shadows, second.shadows, strict=True):
            if p.record is not None and q.record is not None and not ours[p.record].agrees(theirs[q.record], 4):
                return placed(ours[p.record], theirs[q.record])
        return None
    # Means hide a difference in few numbers. If all arguments are new and the means agree, the function differs.
    what = f"another function of the same numbers: {parting.operator}"
    if parting.new < parting.total:
        what = f"{parting.new} of its {parting.total} arguments differ"
    return PartingPlace(beside.place if beside else "", parting.place, parting.operator, units, what)


def difference_of(first: Record, second: Record) -> str:
    """What differs between two operators on the same tensors, in words; empty if unknown."""
    if first.operator != second.operator:
        return f"{second.operator.strip('_')}, where the first network has {first.operator.strip('_')}"
    gaps = dict[str, tuple[float, tuple[int, ...]]]()
    for name, value in second.arguments.items():
        other = first.arguments.get(name)
        if isinstance(value, Tensor):
            if isinstance(other, Tensor) and value.shape == other.shape and value.numel():
                gaps[name] = furthest(other, value)
        elif name not in SILENT and other is not None and value != other:
            return f"its {name} is {value}, not {other}"
    name = max(gaps, key=lambda name: gaps[name][0], default="")
    return f"its {name} differs most at {indices_in_words(gaps[name][1])}" if name and gaps[name][0] else ""


def furthest(one: Tensor, two: Tensor) -> tuple[float, tuple[int, ...]]:
    """The largest difference of two tensors, relative to the largest number, and its index."""
    one, two = (t.detach().cpu().double() for t in (one, two))
    gap = (one - two).abs().nan_to_num(torch.inf)
    return float(gap.max()) / (float(one.abs().max()) or 1.0), place_of_largest(gap)


def indices_in_words(index: tuple[int, ...]) -> str:
    """The index of a weight; the axes of a kernel follow those of channels."""
    named = [f"{name} {i}" for name, i in zip(INDICES, index, strict=False)]
    return ", ".join([*named, *([f"tap {index[2:]}"] if len(index) > 2 else [])]) or "its only number"
