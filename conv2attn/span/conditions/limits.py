"""When a residual counts as none, when a mixing is too large to be of use, and how well floats are known.

These are the numbers of `check_span` that had to be chosen, each with its reason; a report prints those that it used.
"""

from dataclasses import dataclass
from typing import final

from conv2attn.span.conditions.problem import AttentionRows

ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Unit roundoff of the dtypes that attention comes in."""
ULPS = 4
"""How far an entry of attention that comes as floats may be from what it stands for, in units of roundoff.

An assumption, since only whoever computed it knows: the softmax of the scores as they were, its exponential counted as
2 and the sum and the division as 1 each. What the scores themselves had lost is not counted. Attention that is declared
exact has none."""
LARGEST_PHI = {0.0: 1e6, 2.0**-53: 1e6, 2.0**-24: 1e3, 2.0**-11: 10.0, 2.0**-8: 10.0}
"""By roundoff: what four ulps of attention let through, times this, stays far from 1."""
MOST_PHI = 1e100
"""The largest that can be asked for: float64 holds the square of it times all that is multiplied with it."""


@final
@dataclass(frozen=True)
class Limits:
    """The residual that counts as none, the largest norm of a row of Phi (its sum of absolute values), and the relative
    `doubt` in an entry of the attention."""

    eps: float
    max_phi: float
    doubt: float = 0.0


def limits_for(attention: AttentionRows, eps: float | None, max_phi: float | None) -> Limits:
    """The limits given, or by default the norm of the dtype, and the unit roundoff times heads times keys.

    The latter is at most what the uncertainty of each entry lets through.
    Attention that is declared exact has no roundoff, and so an eps of 0.
    """
    norm = LARGEST_PHI[attention.roundoff] if max_phi is None else float(max_phi)
    rounded = attention.roundoff * min(attention.heads * attention.width, ULPS * (1 + norm))
    return Limits(
        rounded if eps is None else float(eps),
        norm,
        attention.ulps * attention.roundoff,
    )
