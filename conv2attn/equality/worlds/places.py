"""Where two networks part: module path and source line in both, found by equal numbers and not by names.

Both run again with a record of every tensor. From the argument at which they part one walks back through the second
network; tensors that the first computes too are where they still agree, and the operator right behind is the suspect.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor

from conv2attn.equality.worlds.followed_calls import followed_call
from conv2attn.equality.worlds.oracles import Oracles
from conv2attn.equality.worlds.records import Parted, Record
from conv2attn.report.result import Number, Part

INDICES = "output channel", "input"


@final
class PartingPlace(Part, frozen=True):
    """The first section in which two networks part: module and source line in both, and the operator.

    `units` is how far it is apart, in units of rounding; `what` says what differs there, and is empty if not known.
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
        return f"they part at {self.operator} of {self.second}{what}{apart}{first}"


def find_place(first: Any, second: Any, args: Any, kwargs: Any, seed: int, units: float) -> PartingPlace | None:
    """The first section of the second network that no section of the first matches; None if none is suspect.

    Args:
        units: how far the two are apart where they part.
    """
    oracles, ours, theirs = Oracles(seed), list[Record](), list[Record]()
    followed_call(first, args, kwargs, oracles, False, seed, ours)
    oracle, ends = None, list[int]()
    try:
        outs = followed_call(second, args, kwargs, oracles, True, seed, theirs).tensors
        shadows = [getattr(t, "_shadow", None) for t in outs.values()]
        ends = [shadow.record for shadow in shadows if shadow is not None and shadow.record is not None]
    except Parted as parted:
        oracle, ends = parted, parted.ends
    twins = Twins(ours, theirs)
    suspects = suspects_behind(theirs, ends, lambda n: twins.of(n) is not None)
    moved = suspects_behind(theirs, ends, twins.in_order)
    if not suspects and moved:  # the means agree, and the order of the numbers does not
        second_record = theirs[min(moved)]
        twin = twins.of(min(moved))
        first_record = ours[twin] if twin is not None else None
        what = "the same numbers in another order" if not difference_of(first_record, second_record) else ""
        return placed(first_record, second_record, units, what)
    if not suspects:
        if oracle is None:
            return None
        reached = {twins.of(n) for n in ends}
        beside = next((r for r in ours if reached & set(r.inputs)), None)
        parting = oracles.parting
        # The means hide a difference in few numbers; where all are new and the means agree, the function is another.
        few = parting is not None and parting.new < parting.total
        what = f"another function of the same numbers: {oracle.operator}"
        if few and parting is not None:
            what = f"{parting.new} of its {parting.total} arguments differ"
        return PartingPlace(beside.place if beside else "", oracle.place, oracle.operator, units, what)
    suspect = theirs[min(suspects)]
    return placed(beside_of(suspect, ours, theirs, twins), suspect, units)


class Twins:
    """For each tensor of the second network the same tensor in the first, the latest of them."""

    def __init__(self, ours: Sequence[Record], theirs: Sequence[Record]):
        self.ours, self.theirs = ours, theirs
        self.numbers: dict[int, int | None] = {}
        self.sizes: dict[int, list[int]] = defaultdict(list)
        for number, record in enumerate(ours):
            self.sizes[record.count].append(number)

    def of(self, number: int) -> int | None:
        """The number of the twin, or None."""
        if number not in self.numbers:
            mine = self.theirs[number]
            candidates = reversed(self.sizes[mine.count])
            self.numbers[number] = next((n for n in candidates if mine.agrees(self.ours[n])), None)
        return self.numbers[number]

    def in_order(self, number: int) -> bool:
        """Whether a tensor of the first has the same numbers in the same order."""
        mine = self.theirs[number]
        return any(mine.agrees(self.ours[n], 4) for n in self.sizes[mine.count])


def suspects_behind(records: Sequence[Record], ends: Sequence[int], same: Callable[[int], bool]) -> set[int]:
    """The tensors on the way back from the ends that differ although all that went into them does not."""
    suspects, stack, visited = set[int](), list(ends), set[int]()
    while stack:
        number = stack.pop()
        if number in visited or same(number):
            continue
        visited.add(number)
        inputs = records[number].inputs
        stack += inputs
        if all(map(same, inputs)):
            suspects.add(number)
    return suspects


def beside_of(suspect: Record, ours: Sequence[Record], theirs: Sequence[Record], twins: Twins) -> Record | None:
    """What the first network computes from the same tensors and the second does not; first the same operator."""
    reached = {twins.of(n) for n in suspect.inputs} - {None}
    matched = set(twins.numbers.values())
    here = [record for n, record in enumerate(ours) if reached & set(record.inputs) and n not in matched]
    here = [record for record in here if not any(record.agrees(t) for t in theirs)]
    return next((r for r in here if r.operator == suspect.operator), here[0] if here else None)


def placed(first: Record | None, second: Record, units: float, what: str = "") -> PartingPlace:
    """The place of two records, and what it is."""
    what = what or difference_of(first, second)
    return PartingPlace(first.place if first else "", second.place, second.operator.strip("_"), units, what)


def difference_of(first: Record | None, second: Record) -> str:
    """What differs between two operators on the same tensors, in words; empty if it is not known."""
    if first is None:
        return ""
    if first.operator != second.operator:
        return f"{second.operator.strip('_')}, where the first network has {first.operator.strip('_')}"
    for name, value in second.numbers.items():
        if name in first.numbers and value != first.numbers[name]:
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
