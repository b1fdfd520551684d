"""Does the second network compute the first, for every input, and how is that known."""

from conv2attn.equivalence.certificate import Certificate, Row
from conv2attn.equivalence.certify import certify
from conv2attn.equivalence.finding import Finding
from conv2attn.equivalence.outputs import Outputs
from conv2attn.equivalence.rechecking import Recheck, recheck
from conv2attn.equivalence.replay import Replay, replay

__all__ = ["Certificate", "Finding", "Outputs", "Recheck", "Replay", "Row", "certify", "recheck", "replay"]
