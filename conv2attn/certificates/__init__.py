"""Does the second network compute the first, for every input, and how is that known."""

from conv2attn.certificates.certificate import Certificate, Outputs, Row
from conv2attn.certificates.network import certify

__all__ = ["Certificate", "Outputs", "Row", "certify"]
