"""Decides whether two networks are the same formula, by evaluating each once over secret prime fields."""

from conv2attn.equality.fingerprint.chance import PREMISE, log2_chance, primes_needed
from conv2attn.equality.fingerprint.evaluation import fingerprint, same_outputs
from conv2attn.equality.fingerprint.field import Field
from conv2attn.equality.fingerprint.identify import Identification, identify
from conv2attn.equality.fingerprint.ring import Undecided, bilinear, limbs_for, near_remainder

__all__ = [
    "PREMISE",
    "Field",
    "Identification",
    "Undecided",
    "bilinear",
    "fingerprint",
    "identify",
    "limbs_for",
    "log2_chance",
    "near_remainder",
    "primes_needed",
    "same_outputs",
]
