"""One rule for each ATen operator: what it makes of the bounds of what it reads."""

from conv2attn.equivalence.rules import activations, arithmetic, layers, moves, windows  # noqa: F401  each adds rules
from conv2attn.equivalence.rules.registry import RULES, Call

__all__ = ["RULES", "Call"]
