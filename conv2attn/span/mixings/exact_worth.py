"""What mixings are worth in exact arithmetic, query after query: the sums of `evaluation` without rounding."""

from collections.abc import Sequence
from fractions import Fraction
from typing import final

import flint

from conv2attn.span.conditions.integer_rows import Coefficients, QueryRows, as_fraction


@final
class ExactWorth:
    """Mixing c is for the target at `places[c]`; all numbers are Fractions with at most `bits` binary places.

    With `y = e - phi A`: `residual` is max over queries of |y_q|_1, `gain` is <y, e>, and `peak` the sum of |y_q|_max.
    `reach` is the least residual that attention within a relative `doubt` leaves with this mixing: what it may take
    from each entry is `doubt |phi| A` (Oettli and Prager 1964).
    """

    def __init__(
        self,
        mixings: Sequence[Sequence[Fraction]],
        places: Sequence[int],
        coefficients: Coefficients,
        doubt: Fraction,
        bits: int,
    ) -> None:
        self.places, self.coefficients, self.doubt = places, coefficients, doubt
        self.bits = max(bits, coefficients.bits)
        count, heads = len(mixings), len(mixings[0])
        whole = [int(x * (1 << self.bits)) for phi in mixings for x in phi]
        self.phi, self.size = (flint.fmpz_mat(count, heads, each) for each in (whole, [abs(x) for x in whole]))
        self.residual, self.reach, self.gain, self.peak = ([Fraction(0)] * count for _ in range(4))
        self.met, self.weight = flint.fmpq_mat(count, heads), flint.fmpq_mat(count, heads)

    def add(self, rows: QueryRows) -> None:
        """One more query, in integers over `unit * 2^bits`."""
        unit, count, keys = rows.unit << self.bits, len(self.places), rows.heads.ncols()
        left, most = [-x for x in (self.phi * rows.heads).entries()], (self.size * rows.heads).entries()
        slack, whole = self.doubt.numerator, self.doubt.denominator
        for c, place in enumerate(self.places):
            asked = self.coefficients.of(place, rows)
            for key, number in asked.items():
                left[c * keys + key] += (number << (self.bits - self.coefficients.bits)) * rows.unit
            mine, reached = (each[c * keys : (c + 1) * keys] for each in (left, most))
            sizes = [abs(x) for x in mine]
            over = [s * whole - slack * m for s, m in zip(sizes, reached, strict=True)]
            self.residual[c] = max(self.residual[c], Fraction(int(sum(sizes)), unit))
            self.reach[c] = max(self.reach[c], Fraction(int(sum(x for x in over if x > 0)), unit * whole))
            gain = sum(int(mine[key]) * number for key, number in asked.items())
            self.gain[c] += Fraction(gain, unit << self.coefficients.bits)
            self.peak[c] += Fraction(int(max(sizes)), unit)
        scale, flipped = flint.fmpq(1, unit * rows.unit), rows.heads.transpose()
        self.met += flint.fmpq_mat(flint.fmpz_mat(count, keys, left) * flipped) * scale
        self.weight += flint.fmpq_mat(flint.fmpz_mat(count, keys, [abs(x) for x in left]) * flipped) * scale

    def blocked(self, c: int, doubt: Fraction) -> Fraction:
        """The most that a unit of any head, within a relative `doubt`, takes from the gain: max |<A_h, y>| + doubt."""
        heads = range(self.met.ncols())
        return max(abs(as_fraction(self.met[c, h])) + doubt * as_fraction(self.weight[c, h]) for h in heads)
