"""Does the second network compute the first, for every input, and how is that known."""

from conv2attn.certificates.certificate import Certificate, Row
from conv2attn.certificates.finding import Finding
from conv2attn.certificates.network import certify
from conv2attn.certificates.outputs import Outputs
from conv2attn.certificates.recheck import Recheck, recheck

__all__ = ["Certificate", "Finding", "Outputs", "Recheck", "Row", "certify", "recheck"]
