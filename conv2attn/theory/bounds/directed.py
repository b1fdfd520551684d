"""From exact numbers and balls to floats that are never on the wrong side."""

import math
import sys
from fractions import Fraction

import flint

from conv2attn.errors import AlphaError

BALL_PRECISION = 256  # bits; 200 more than a float64 keeps, so that every ball below is far narrower than one ulp


def up(value: float | Fraction | flint.arb) -> float:
    """The smallest float64 that is not below `value`; for a ball, not below its upper end.

    A positive value never becomes 0. A ball that is not finite becomes infinity, the only safe bound.
    """
    if isinstance(value, flint.arb):
        if not value.is_finite():
            return math.inf
        # The upper end is a dyadic number, which a Fraction holds exactly; `float(ball)` would drop the radius.
        mantissa, exponent = (int(part) for part in value.upper().man_exp())
        # Far outside the range of float64 the answer is known, and 2^exponent may be too long an integer to form.
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
        raise AlphaError("C2A130", f"alpha={alpha!r}", "Pass a positive finite number.")
    return flint.arb(alpha)
