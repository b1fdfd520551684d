"""Can this attention express a convolution? Lemma 3, tested on trained attention, and used."""

from conv2attn.span.checking import CONDITIONS, check_span
from conv2attn.span.conditions.condition import Condition, Counting, Mixing, Mixings, NullVector, Target
from conv2attn.span.facts import HeadFacts, HeadsReport, LayerFacts, SpanFact, heads
from conv2attn.span.measures import NearestConvolution
from conv2attn.span.questions import fit_heads, head_offsets, profiles, redundant_heads
from conv2attn.span.report import SpanReport, SpanRow
from conv2attn.span.uses.express import Expression, Fit, express, expression
from conv2attn.span.uses.fewest import FewestHeads, fewest_heads
from conv2attn.span.uses.heads import HeadReading, Redundancy
from conv2attn.span.uses.profiles import Pattern, Profiles
from conv2attn.span.uses.recover import Recovered, recover

__all__ = [
    "CONDITIONS",
    "Condition",
    "Counting",
    "Expression",
    "FewestHeads",
    "Fit",
    "HeadFacts",
    "HeadReading",
    "HeadsReport",
    "LayerFacts",
    "Mixing",
    "Mixings",
    "NearestConvolution",
    "NullVector",
    "Pattern",
    "Profiles",
    "Recovered",
    "Redundancy",
    "SpanFact",
    "SpanReport",
    "SpanRow",
    "Target",
    "check_span",
    "express",
    "expression",
    "fewest_heads",
    "fit_heads",
    "head_offsets",
    "heads",
    "profiles",
    "recover",
    "redundant_heads",
]
