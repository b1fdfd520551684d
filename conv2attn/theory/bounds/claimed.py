"""Bounds as numbers: rounded up or down, and with the names of the theorems on which they rest."""

import math
import sys
from fractions import Fraction
from typing import Self, final

import flint

from conv2attn.errors import AlphaError

WITHOUT_THEOREM = "steps without a theorem"


@final
class Claimed(float):
    """A bound with the claims of proofs/ on which it rests. A step without a theorem adds `WITHOUT_THEOREM` to them.

    Arithmetic on it returns a plain float without claims. Code that combines bounds must unite their claims itself.

    >>> bound = Claimed(2.0, {"FLOAT"})
    >>> sorted(claims_of(bound, Claimed(1.0, {"L2c"}), 3.0))
    ['FLOAT', 'L2c']
    """

    claims: frozenset[str]

    def __new__(cls, value: float, claims: frozenset[str] | set[str] = frozenset()) -> Self:
        """`value`, resting on `claims`."""
        # A float is immutable, so its value is set in `__new__`; `__init__` would come too late.
        number = super().__new__(cls, value)
        number.claims = frozenset(claims)
        return number


def claims_of(*parts: object) -> frozenset[str]:
    """The claims of all parts together. A plain number has no claims: it was given, not proved."""
    return frozenset[str]().union(*(getattr(part, "claims", ()) for part in parts))


BALL_PRECISION = 256  # bits; 200 more than a float64 has, so every ball (interval) of arb is far narrower than one ulp


def up(value: float | Fraction | flint.arb) -> float:
    """The smallest float64 that is not below `value`, or not below the upper end of a ball, which is an interval.

    A positive value never becomes 0. A ball that is not finite becomes infinity, the only safe bound.
    """
    if isinstance(value, flint.arb):
        if not value.is_finite():
            return math.inf
        # The upper end is a dyadic number, which a Fraction holds exactly; `float(ball)` would drop the radius.
        mantissa, exponent = (int(part) for part in value.upper().man_exp())
        # Far outside the range of float64 the result is known, and 2^exponent may be too long an integer to form.
        magnitude = mantissa.bit_length() + exponent
        if magnitude < -1080:
            return 0.0 if mantissa <= 0 else math.ulp(0.0)
        if magnitude > 1024:
            return math.inf if mantissa > 0 else -sys.float_info.max
        value = mantissa * Fraction(2) ** exponent
    exact = Fraction(value)
    # `float` rounds a Fraction to nearest, correctly. So at most one step up is missing.
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -sys.float_info.max
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)


def down(value: float | Fraction | flint.arb) -> float:
    """The largest float64 that is not above `value`; for a ball, not above its lower end."""
    return -up(-value)


def positive_ball(alpha: float) -> flint.arb:
    """`alpha` as an exact ball.

    Raises:
        AlphaError: `alpha` is not positive and finite.
    """
    if not (alpha > 0 and math.isfinite(alpha)):
        raise AlphaError("C2A130", f"alpha={alpha!r} is not a positive finite number", "Pass such a number.")
    return flint.arb(alpha)
