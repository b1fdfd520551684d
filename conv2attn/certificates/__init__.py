"""Does the second network compute the first, for every input, and how is that known."""

from conv2attn.certificates.certificate import Certificate, Row
from conv2attn.certificates.computed.outputs import Outputs
from conv2attn.certificates.evidence.recheck import Recheck, recheck
from conv2attn.certificates.evidence.replay import Replay, replay
from conv2attn.certificates.network import certify
from conv2attn.certificates.readings.finding import Finding

__all__ = ["Certificate", "Finding", "Outputs", "Recheck", "Replay", "Row", "certify", "recheck", "replay"]
