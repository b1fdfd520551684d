"""Rules: what operators of torch compute, each in a few lines; a rule names the arguments that it understands."""

from conv2attn.equality.fingerprint.rules import (
    attention,
    extremes,
    norms,
    pointwise,
    pools,
    powers,
    products,
    scattered,
    sums,
)
from conv2attn.equality.fingerprint.rules.call import RULES

__all__ = [
    "RULES",
    "attention",
    "extremes",
    "norms",
    "pointwise",
    "pools",
    "powers",
    "products",
    "scattered",
    "sums",
]
