"""Tensors of two runs that are the same numbers, and on the way back from an end those behind which that ends."""

from collections import defaultdict
from collections.abc import Callable, Sequence

from conv2attn.equality.worlds.records import Record


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
