"""What float64 leaves open, looked at again in exact arithmetic: no rounding, only the attention's own uncertainty.

The floats are the dyadic rationals that they are. A mixing phi with `y = e - phi A` leaves `residual`, and every other
one, for every attention within the uncertainty, at least `floor`, as in `evaluation` but without rounding. What is open
after that is open by nature wherever `reach` is at most eps: attention within the uncertainty then satisfies the
condition, while these very floats may not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np
from numpy.typing import NDArray

from conv2attn.span.conditions.integer_rows import Coefficients, integer_rows
from conv2attn.span.conditions.limits import Limits
from conv2attn.span.conditions.problem import AttentionRows, Targets
from conv2attn.span.mixings.evaluation import uncertainty
from conv2attn.span.mixings.exact_worth import ExactWorth
from conv2attn.span.mixings.least_squares import BITS, products, proposals
from conv2attn.span.mixings.norm_bound import Independence, NormBound

LARGEST = 2 * 10**6
"""Exact numbers (heads and candidates, queries, keys) that are a matter of seconds; of more queries, some are taken."""
MOST_HEADS = 32
"""Heads whose equations are solved to hundreds of bits in well under a second; of more, float64 has the last word."""


@final
@dataclass(frozen=True)
class Refined:
    """A mixing and what it is worth, exactly. `residual` and `reach` are None where not all queries were looked at.

    `own_floor` is the floor of these very floats. The norm of other mixings is bounded by the limit, or through
    `inverse` (see `norm_bound`) where that shows more.
    """

    target: int
    weights: tuple[Fraction, ...]
    residual: Fraction | None
    reach: Fraction | None
    floor: Fraction
    own_floor: Fraction
    queries: tuple[int, ...]
    inverse: tuple[tuple[float, ...], ...] | None

    @property
    def norm(self) -> Fraction:
        """Sum of the absolute values of the row."""
        return sum(map(abs, self.weights), Fraction(0))


def refine(
    attention: AttentionRows, targets: Targets, chosen: NDArray[np.bool_], limits: Limits, wanted: Sequence[int]
) -> dict[int, list[Refined]]:
    """For each wanted target: the mixing of least squares within the norm, and the one that shows most against it."""
    if attention.heads > MOST_HEADS:
        return {}
    some = affordable(attention, chosen, len(wanted))
    coefficients = Coefficients.exactly(targets.coefficients[list(wanted)])
    given = products(integer_rows(attention, targets, some), attention.heads, coefficients)
    doubt, most = Fraction(uncertainty(attention)), Fraction(limits.max_phi)
    mixings = proposals(given, most)
    places = [place for place, each in enumerate(mixings) for _ in each]
    worth = ExactWorth([phi for each in mixings for phi in each], places, coefficients, doubt, BITS)
    inverse = given.inverse()
    apart = None if inverse is None else Independence(inverse)
    for rows in integer_rows(attention, targets, some):
        worth.add(rows)
        if apart is not None:
            apart.add(rows)
    looked = tuple(int(i * len(chosen) + q) for i in range(attention.images) for q in np.flatnonzero(some))
    complete, limited = bool((some == chosen).all()), NormBound(most, Fraction(0))
    found: dict[int, list[Refined]] = {j: [] for j in wanted}
    for c, (place, phi) in enumerate(zip(places, (phi for each in mixings for phi in each), strict=True)):
        floors = []
        for share in (doubt, Fraction(0)):
            bound = None if apart is None else apart.bound(given.gram, given.along(place), share)
            sums = (worth.gain[c], worth.peak[c], worth.blocked(c, share))
            floors.append(max((each.floor(*sums), each is bound) for each in (limited, bound or limited)))
        (floor, helped), (own, _) = floors
        left, reach = (worth.residual[c], worth.reach[c]) if complete else (None, None)
        shown = tuple(map(tuple, inverse.tolist())) if helped and inverse is not None else None
        found[wanted[place]].append(Refined(wanted[place], tuple(phi), left, reach, floor, own, looked, shown))
    return found


def affordable(attention: AttentionRows, chosen: NDArray[np.bool_], wanted: int) -> NDArray[np.bool_]:
    """The chosen queries, or as many of them, far and wide, as can be looked at exactly."""
    queries = np.flatnonzero(chosen)
    each = attention.images * attention.grid.shape[1] * (2 * attention.heads + 2 * wanted)
    if len(queries) * each <= LARGEST:
        return chosen
    some = np.zeros_like(chosen)
    some[queries[np.linspace(0, len(queries) - 1, max(1, LARGEST // each)).astype(int)]] = True
    return some
