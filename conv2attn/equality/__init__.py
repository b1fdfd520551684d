"""Does the second network compute the first, for every input, and how is that known."""

from conv2attn.equality import certificate_document as certificate_document  # registers its rule
from conv2attn.equality.bases import Pair as Pair
from conv2attn.equality.bases import comparable_basis as comparable_basis
from conv2attn.equality.bases import soft_heads as soft_heads
from conv2attn.equality.certify import certify
from conv2attn.equality.plain_calls import differing_calls as differing_calls
from conv2attn.equality.rechecking import Recheck, recheck_certificate
from conv2attn.equality.results import Certificate, Counterexample, Finding, Outputs, Row
from conv2attn.equality.results import Gap as Gap
from conv2attn.equality.results import Identified as Identified
from conv2attn.equality.results import holds as holds
from conv2attn.equality.results import refuted as refuted
from conv2attn.equality.results import undecided as undecided
from conv2attn.equality.rounding import difference_bounds as difference_bounds
from conv2attn.equality.rows import Measured as Measured
from conv2attn.equality.rows import judge_measured as judge_measured
from conv2attn.equality.symmetry import symmetric

__all__ = [
    "Certificate",
    "Counterexample",
    "Finding",
    "Outputs",
    "Recheck",
    "Row",
    "certify",
    "recheck_certificate",
    "symmetric",
]
