"""Can this attention express a convolution? Lemma 3, tested on trained attention, and used."""

from conv2attn.span import span_document as span_document  # registers its rule
from conv2attn.span.checking import CONDITIONS, check_span
from conv2attn.span.distillation import distil
from conv2attn.span.distillation_report import Distillation, DistilledLayer
from conv2attn.span.express import Expression, express, expression, fit_heads
from conv2attn.span.graded_facts import facts_document as facts_document  # registers its rules
from conv2attn.span.graded_facts.facts import ConvolutionFact, HeadFacts, HeadsReport, LayerFacts, SpanFact
from conv2attn.span.graded_facts.measuring import heads
from conv2attn.span.questions import (
    HeadReading,
    MovedPattern,
    Profiles,
    Redundancy,
    head_offsets,
    profiles,
    redundant_heads,
)
from conv2attn.span.recover import Recovered, recover
from conv2attn.span.span_report import Condition, Counting, Ends, Evidence, SpanReport, SpanRow, Target

__all__ = [
    "CONDITIONS",
    "Condition",
    "ConvolutionFact",
    "Counting",
    "Distillation",
    "DistilledLayer",
    "Ends",
    "Evidence",
    "Expression",
    "HeadFacts",
    "HeadReading",
    "HeadsReport",
    "LayerFacts",
    "MovedPattern",
    "Profiles",
    "Recovered",
    "Redundancy",
    "SpanFact",
    "SpanReport",
    "SpanRow",
    "Target",
    "check_span",
    "distil",
    "express",
    "expression",
    "fit_heads",
    "head_offsets",
    "heads",
    "profiles",
    "recover",
    "redundant_heads",
]
