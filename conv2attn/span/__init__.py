"""Decides whether attention can express a convolution (Lemma 3), and replaces the one by the other."""

from conv2attn.span import span_document as span_document  # registers its rule
from conv2attn.span.attending import ask_attention as ask_attention
from conv2attn.span.attention_rows import AttentionRows as AttentionRows
from conv2attn.span.attention_rows import Limits as Limits
from conv2attn.span.attention_rows import limits_for as limits_for
from conv2attn.span.certificate import certificates as certificates
from conv2attn.span.certificate import recheck_span as recheck_span
from conv2attn.span.checking import CONDITIONS, check_span
from conv2attn.span.conditions import check as check
from conv2attn.span.conditions import check_kernel as check_kernel
from conv2attn.span.distillation import distil
from conv2attn.span.distillation import kernel_head as kernel_head
from conv2attn.span.distillation_report import Distillation, DistilledLayer
from conv2attn.span.equations import Targets as Targets
from conv2attn.span.equations import shift_targets as shift_targets
from conv2attn.span.express import Expression, express, expression
from conv2attn.span.graded_facts import facts_document as facts_document  # registers its rules
from conv2attn.span.graded_facts.facts import ConvolutionFact, HeadFacts, HeadsReport, SpanFact
from conv2attn.span.graded_facts.measuring import heads
from conv2attn.span.grids import grid_of as grid_of
from conv2attn.span.reading import rows_of as rows_of
from conv2attn.span.recover import Recovered, recover
from conv2attn.span.span_report import Counting, Ends, SpanReport, SpanRow, Target

__all__ = [
    "CONDITIONS",
    "ConvolutionFact",
    "Counting",
    "Distillation",
    "DistilledLayer",
    "Ends",
    "Expression",
    "HeadFacts",
    "HeadsReport",
    "Recovered",
    "SpanFact",
    "SpanReport",
    "SpanRow",
    "Target",
    "check_span",
    "distil",
    "express",
    "expression",
    "heads",
    "recover",
]
