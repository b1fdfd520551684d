"""Where two networks part: module path and source line in both, found by equal numbers and not by names.

Both run again with a record of every tensor. From the argument at which they part one walks back through the second
network; tensors that the first computes too are where they still agree, and the operator right behind is the suspect.
"""

import math
from typing import Any, final

from conv2attn.equality.worlds.followed_calls import followed_call
from conv2attn.equality.worlds.oracles import Oracles
from conv2attn.equality.worlds.output_shadows import outputs_apart
from conv2attn.equality.worlds.parting_words import difference_of
from conv2attn.equality.worlds.record_twins import Twins, beside_of, suspects_behind
from conv2attn.equality.worlds.records import Parted, Record
from conv2attn.equality.worlds.units import LIMIT
from conv2attn.report.result import Number, Part


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


def find_place(
    first: Any, second: Any, args: Any, kwargs: Any, seed: int, units: float | None = None
) -> PartingPlace | None:
    """The first section of the second network that no section of the first matches; None if none is suspect.

    Args:
        units: how far the two are apart where they part; by default it is found here, and there is no place where all
            sections agree.
    """
    oracles, ours, theirs = Oracles(seed), list[Record](), list[Record]()
    one = followed_call(first, args, kwargs, oracles, False, seed, ours)
    oracle, ends = None, list[int]()
    try:
        two = followed_call(second, args, kwargs, oracles, True, seed, theirs)
        ends = [shadow.record for shadow in two.shadows if shadow is not None and shadow.record is not None]
        if units is None:
            pairs = zip(one.shadows, two.shadows, strict=True)
            units = max((outputs_apart(p, q, oracles) for p, q in pairs if p and q), default=0.0)
            if units <= LIMIT:
                return None
    except Parted as parted:
        oracle, ends = parted, parted.ends
        units = oracles.parting.units if units is None and oracles.parting else units
    units = math.inf if units is None else units
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


def placed(first: Record | None, second: Record, units: float, what: str = "") -> PartingPlace:
    """The place of two records, and what it is."""
    what = what or difference_of(first, second)
    return PartingPlace(first.place if first else "", second.place, second.operator.strip("_"), units, what)
