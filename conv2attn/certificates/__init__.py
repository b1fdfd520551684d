"""Does the second network compute the first, for every input, and how is that known."""

from conv2attn.certificates.certificate import Certificate, Row
from conv2attn.certificates.finding import Finding
from conv2attn.certificates.network import certify
from conv2attn.certificates.outputs import Outputs
from conv2attn.certificates.recheck import Recheck, recheck
from conv2attn.certificates.replay import Replay, replay

__all__ = ["Certificate", "Finding", "Outputs", "Recheck", "Replay", "Row", "certify", "recheck", "replay"]
