"""Does the second network compute the first, for every input, and how is that known."""

from conv2attn.equivalence.certificate import Certificate, Row
from conv2attn.equivalence.computed.outputs import Outputs
from conv2attn.equivalence.evidence.recheck import Recheck, recheck
from conv2attn.equivalence.evidence.replay import Replay, replay
from conv2attn.equivalence.network import certify
from conv2attn.equivalence.readings.finding import Finding

__all__ = ["Certificate", "Finding", "Outputs", "Recheck", "Replay", "Row", "certify", "recheck", "replay"]
