"""Decides whether the second network computes the first for every input, and states how that is known."""

from conv2attn.equality.certificate import certificate_document as certificate_document  # registers its rule
from conv2attn.equality.certificate.rechecking import Recheck, recheck_certificate
from conv2attn.equality.certificate.results import Certificate, Counterexample, Finding, Outputs, Row
from conv2attn.equality.certificate.results import Gap as Gap
from conv2attn.equality.certificate.results import Identified as Identified
from conv2attn.equality.certificate.results import holds as holds
from conv2attn.equality.certificate.results import refuted as refuted
from conv2attn.equality.certificate.results import undecided as undecided
from conv2attn.equality.certify import certify
from conv2attn.equality.layers.bases import Pair as Pair
from conv2attn.equality.layers.bases import comparable_basis as comparable_basis
from conv2attn.equality.layers.bases import soft_heads as soft_heads
from conv2attn.equality.layers.rounding import difference_bounds as difference_bounds
from conv2attn.equality.layers.rows import Measured as Measured
from conv2attn.equality.layers.rows import judge_measured as judge_measured
from conv2attn.equality.plain_calls import differing_calls as differing_calls
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
