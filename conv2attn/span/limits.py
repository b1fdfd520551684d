"""When a residual counts as none, and when a mixing is too large to be of use."""

from dataclasses import dataclass
from typing import final

from conv2attn.span.problem import AttentionRows

LARGEST_PHI = {0.0: 1e6, 2.0**-53: 1e6, 2.0**-24: 1e3, 2.0**-11: 10.0, 2.0**-8: 10.0}
"""By roundoff: what four ulps of attention let through, times this, stays far from 1."""


@final
@dataclass(frozen=True)
class Limits:
    """The residual that counts as none, and the largest norm of a row of Phi (its sum of absolute values)."""

    eps: float
    max_phi: float


def limits_for(attention: AttentionRows, eps: float | None, max_phi: float | None) -> Limits:
    """The limits given, or by default the unit roundoff times heads times keys, and the norm of the dtype.

    Attention that is declared exact has no roundoff, and so an eps of 0.
    """
    size = attention.heads * attention.grid.shape[1]
    return Limits(
        attention.roundoff * size if eps is None else float(eps),
        LARGEST_PHI[attention.roundoff] if max_phi is None else float(max_phi),
    )
