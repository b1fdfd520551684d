"""Graded facts of heads: shares, distances and nearest convolutions, with standard errors."""

from conv2attn.span.graded_facts.facts import Errors, HeadFacts, LayerFacts
from conv2attn.span.graded_facts.measures import error_of
from conv2attn.span.graded_facts.named_facts import Curve, Fact
from conv2attn.span.graded_facts.nearest import nearest_convolutions
from conv2attn.span.graded_facts.replacing import replacement
from conv2attn.span.graded_facts.sums import sums_of

__all__ = [
    "Curve",
    "Errors",
    "Fact",
    "HeadFacts",
    "LayerFacts",
    "error_of",
    "nearest_convolutions",
    "replacement",
    "sums_of",
]
