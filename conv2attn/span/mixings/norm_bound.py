"""How large a row of Phi can be at all, given what it leaves: the heads' own independence bounds it.

For vectors z_h with `<A_g, z_h>` about 1 for g = h and 0 otherwise, any psi and any A' = A + dA with
`psi A' = e - r`, where |r_q|_1 <= rho at each query, have

    psi_h = <e, z_h> - <r, z_h> - sum_g psi_g (<A_g, z_h> - [g = h] + <dA_g, z_h>)

so that `|psi| (1 - c) <= sum_h |<e, z_h>| + rho sum_h sum_q |z_hq|_max`, with c the largest over g of
`sum_h |<A_g, z_h> - [g = h]| + <|dA_g|, |z_h|>`. Here `z_h = sum_g inverse[h, g] A_g`, inverse about `(A A^T)^-1`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import flint

from conv2attn.span.conditions.integer_rows import QueryRows, as_fraction, over_power_of_two
from conv2attn.span.conditions.problem import Array


@final
@dataclass(frozen=True)
class NormBound:
    """A row of Phi that leaves rho has a norm of at most `start + slope * rho`."""

    start: Fraction
    slope: Fraction

    def floor(self, gain: Fraction, peak: Fraction, reach: Fraction) -> Fraction:
        """The least rho with `rho peak >= gain - (start + slope rho) reach`."""
        whole = peak + self.slope * reach
        return (gain - self.start * reach) / whole if whole else Fraction(0)


@final
class Independence:
    """The sums over queries that bound the norm, for an approximate inverse (heads, heads) of the Gram matrix."""

    def __init__(self, inverse: Array) -> None:
        self.unit, whole = over_power_of_two(inverse)
        self.inverse = flint.fmpz_mat(whole)
        self.heads = len(inverse)
        self.peak = Fraction(0)
        self.size = flint.fmpq_mat(self.heads, self.heads)

    def add(self, rows: QueryRows) -> None:
        """One more query."""
        keys, unit = rows.heads.ncols(), self.unit * rows.unit
        sizes = [abs(x) for x in (self.inverse * rows.heads).entries()]
        self.peak += Fraction(int(sum(max(sizes[h * keys : (h + 1) * keys]) for h in range(self.heads))), unit)
        met = rows.heads * flint.fmpz_mat(self.heads, keys, sizes).transpose()
        self.size += flint.fmpq_mat(met) * flint.fmpq(1, unit * rows.unit)

    def bound(self, gram: flint.fmpq_mat, met: Sequence[Fraction], doubt: Fraction) -> NormBound | None:
        """The bound for a target with `met[g] = <A_g, e>`, where it is one."""
        heads = range(self.heads)
        inverse = flint.fmpq_mat(self.inverse) * flint.fmpq(1, self.unit)
        apart = gram * inverse.transpose()
        lost = [
            sum(
                (abs(as_fraction(apart[g, h]) - (g == h)) + doubt * as_fraction(self.size[g, h]) for h in heads),
                Fraction(0),
            )
            for g in heads
        ]
        left = 1 - max(lost)
        if left <= 0:
            return None
        asked = [sum((as_fraction(inverse[h, g]) * met[g] for g in heads), Fraction(0)) for h in heads]
        return NormBound(sum(map(abs, asked), Fraction(0)) / left, self.peak / left)
