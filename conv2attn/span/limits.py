"""When a residual counts as none, when a mixing is too large to be of use, and how well floats are known.

These are the numbers of `check_span` that had to be chosen, each with its reason; a report prints those that it used.
"""

from conv2attn.report.stored import Part
from conv2attn.span.rows import AttentionRows

ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Unit roundoff of the dtypes that attention comes in."""
ULPS = 4
"""How far an entry of attention that comes as floats may be from what it stands for, in units of roundoff.

An assumption, since only whoever computed it knows: the softmax of the scores as they were, its exponential counted as
2 and the sum and the division as 1 each. What the scores themselves had lost is not counted. Attention that is declared
exact has none."""
LARGEST_PHI = {0.0: 1e6, 2.0**-53: 1e6, 2.0**-24: 1e3, 2.0**-11: 10.0, 2.0**-8: 10.0}
"""By roundoff: what four ulps of attention let through, times this, stays far from 1."""
MOST_ALLOWED = 0.5
"""A Phi so large that rounding lets more than this through does not count: no heads at all leave 1."""
MOST_PHI = 1e100
"""The largest that can be asked for: float64 holds the square of it times all that is multiplied with it."""


class Limits(Part, frozen=True):
    """A residual of at most `eps + per_norm |phi|_1` counts as none; `|phi|_1`, the sum of the absolute values of a row
    of Phi, is at most `max_phi`."""

    eps: float
    max_phi: float
    per_norm: float = 0.0

    def allowed(self, norm: float) -> float:
        """The residual that counts as none for a mixing of this norm."""
        return self.eps + self.per_norm * norm


def limits_for(attention: AttentionRows, eps: float | None, max_phi: float | None) -> Limits:
    """The limits given; by default the norm of the dtype, and what the entries' uncertainty c u lets through.

    Rows sum to 1, so that a relative change of every entry by c u moves `phi A_q` by at most `c u |phi|_1`, whatever
    the number of keys, and `e_q - phi A_q` is a sum of heads + 1 products. Exact and one-hot attention have no c u.
    """
    norm = LARGEST_PHI[attention.roundoff] if max_phi is None else float(max_phi)
    if eps is not None:
        return Limits(float(eps), norm)
    known = attention.ulps * attention.roundoff
    share = known + 2 * (attention.heads + 4) * 2.0**-53 if known else 0.0
    largest = (MOST_ALLOWED - share) / share if share else norm
    return Limits(share, min(norm, largest), share)
