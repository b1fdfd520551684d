"""Can this attention express a convolution? Lemma 3, tested on trained attention, and used."""

from conv2attn.span.checking import CONDITIONS, check_span
from conv2attn.span.condition import Condition, Counting, Mixing, NullVector, Target
from conv2attn.span.report import SpanReport, SpanRow

__all__ = [
    "CONDITIONS",
    "Condition",
    "Counting",
    "Mixing",
    "NullVector",
    "SpanReport",
    "SpanRow",
    "Target",
    "check_span",
]
