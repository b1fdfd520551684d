"""Does the second network compute the first, for every input, and how is that known."""

from conv2attn.equality import certificate_document as certificate_document  # registers its rule
from conv2attn.equality.certify import certify
from conv2attn.equality.rechecking import Recheck, recheck_certificate
from conv2attn.equality.results import Certificate, Counterexample, Finding, Outputs, Row
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
