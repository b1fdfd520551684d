"""Are two networks the same formula? Evaluated once over secret prime fields, on tensors without memory."""

from conv2attn.equality.fingerprint.chance import PREMISE
from conv2attn.equality.fingerprint.identify import Identification, identify
from conv2attn.equality.fingerprint.ring import Undecided

__all__ = ["PREMISE", "Identification", "Undecided", "identify"]
