"""Where two networks part: module path and source line in both, found by equal numbers and not by names.

Of every tensor of both there is a record. From the argument at which they part one walks back through the second
network; tensors that the first computes too are where they still agree, and the operator right behind is the suspect.
"""

import math
from typing import Any, final

from conv2attn.equality.worlds.followed_calls import FollowedCall
from conv2attn.equality.worlds.oracles import Parting
from conv2attn.equality.worlds.parting_words import difference_of
from conv2attn.equality.worlds.record_twins import Twins, beside_of, suspects_behind
from conv2attn.equality.worlds.records import Record
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


def find_place(first: FollowedCall, second: FollowedCall, parting: Parting | None, units: float) -> PartingPlace | None:
    """The first section of the second network that no section of the first matches; None if none is suspect.

    Args:
        parting: where an oracle met new arguments; without one the outputs are `units` apart.
    """
    ours, theirs, ends = first.watch.records, second.watch.records, second.watch.ends
    if parting is None:
        ends = [shadow.record for shadow in second.shadows if shadow is not None and shadow.record is not None]
    twins = Twins(ours, theirs)
    if suspects := suspects_behind(theirs, ends, lambda n: twins.of(n) is not None):
        suspect = theirs[min(suspects)]
        return placed(beside_of(suspect, ours, theirs, twins), suspect, units)
    # The means agree, and the order of the numbers may not.
    if moved := suspects_behind(theirs, ends, twins.in_order):
        twin = twins.of(min(moved))
        beside, suspect = None if twin is None else ours[twin], theirs[min(moved)]
        what = "" if difference_of(beside, suspect) else "the same numbers in another order"
        return placed(beside, suspect, units, what)
    if parting is None:
        return None
    reached = {twins.of(n) for n in ends}
    beside = next((r for r in ours if reached & set(r.inputs)), None)
    # The means hide a difference in few numbers; where all are new and the means agree, the function is another.
    what = f"another function of the same numbers: {parting.operator}"
    if parting.new < parting.total:
        what = f"{parting.new} of its {parting.total} arguments differ"
    return PartingPlace(beside.place if beside else "", parting.place, parting.operator, units, what)


def placed(first: Record | None, second: Record, units: float, what: str = "") -> PartingPlace:
    """The place of two records, and what it is."""
    what = what or difference_of(first, second)
    return PartingPlace(first.place if first else "", second.place, second.operator.strip("_"), units, what)
