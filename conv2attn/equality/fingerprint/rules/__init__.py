"""Rules: the formulas of torch's operators, each in a few lines; a rule names the arguments that it supports."""

from conv2attn.equality.fingerprint.rules import (
    attention,
    pointwise,
    pools,
    powers,
    products,
    reductions,
    scattered,
)
from conv2attn.equality.fingerprint.rules.call import RULES

__all__ = [
    "RULES",
    "attention",
    "pointwise",
    "pools",
    "powers",
    "products",
    "reductions",
    "scattered",
]
