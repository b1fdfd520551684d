"""`FACTS`: every number of heads and of layers, named once for reports, CSV, JSON, pictures and the page of `explore`.

To add a number of a head, add a field of `HeadFacts` in `facts.py`, a line here with the rule that computes it, and a
test.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from conv2attn.span.graded_facts.facts import KIND_RULES, ConvolutionFact, LayerFacts
from conv2attn.span.graded_facts.measures import Estimate
from conv2attn.span.graded_facts.named_facts import Curve, Fact, SummedHead
from conv2attn.span.graded_facts.patterns import (
    REDUNDANT,
    anisotropy,
    horizontal,
    likeness,
    moved,
    of_patterns,
    overlap,
    vertical,
)
from conv2attn.span.graded_facts.sums import Sums


def difference_from_convolution(layer: LayerFacts) -> float | None:
    """The largest difference of the layer from the nearest 3x3 convolution, divided by the norm of the layer."""
    fact: ConvolutionFact | None = layer.convolution(3)
    return fact.error / fact.norm if fact is not None and fact.error is not None and fact.norm else None


UNBIASED = "corrected for bias by the jackknife if there are several images, so it may slightly exceed its range"

FACTS: tuple[Fact, ...] = (
    Fact(
        "kind",
        "kind",
        "kind",
        "word",
        "; ".join(f"{rule.kind}: {rule.meaning} ({rule.number} >= {rule.threshold:g})" for rule in KIND_RULES)
        + "; mixed: none of these. The first rule that fits decides; kinds need at least two queries",
        columns="head",
        leaves=None,
        explored=True,
    ),
    Fact(
        "peak",
        "peak",
        "peak",
        "displacement",
        "argmax over d of m(d) = sum_q A[q, q + d] / queries, over all images; d = key - query",
        rule=lambda head: head.displacement(head.peak),
        columns="head",
        leaves=None,
        explored=True,
    ),
    Fact(
        "peak_mass",
        "mass",
        "attention to the peak",
        "share",
        "m(d) at the peak",
        rule=lambda head: float(head.mass.ravel()[head.peak]),
        columns="head",
        leaves=None,
        explored=True,
    ),
    Fact(
        "argmax",
        "argmax",
        "most frequent argmax",
        "share",
        "the share of queries whose largest weight is at one displacement, the most frequent one",
        "Voita et al. 2019, Sec. 4.1, where 90 % make a positional head",
        rule=lambda head: float(head.sums.argmax[head.head].max() / head.count),
        columns="head",
        leaves=4,
    ),
    Fact(
        "relative",
        "rel",
        "relative position",
        "share",
        "the share of the energy that the mean by displacement explains. The energy is the sum of (A - mean of A's row "
        "over the keys that it may read)^2. It is estimated by products of different images, without bias; a head that "
        "attends evenly has no shares",
        "U-statistics: Hoeffding 1948",
        rule=lambda head: head.shares[0],
        columns="both",
        leaves=None,
        curve=Curve("tab:blue", "o"),
        explored=True,
    ),
    Fact(
        "errors.relative",
        "se",
        "error of relative position",
        "error of a share",
        "standard error of rel over the images; the JSON document has a standard error for every share",
        "jackknife: Efron and Stein 1981",
        layer_rule=lambda layer: layer.errors.relative,
        columns="both",
    ),
    Fact(
        "absolute",
        "abs",
        "other position",
        "share",
        "the share of the energy (see rel) that the rest of the mean over images explains; one image does not "
        "determine it",
        "U-statistics: Hoeffding 1948",
        rule=lambda head: head.shares[1],
        columns="both",
        leaves=1,
        explored=True,
    ),
    Fact(
        "content",
        "cont",
        "content",
        "share",
        "the share of the energy (see rel) that varies over images; one image does not determine it",
        "U-statistics: Hoeffding 1948",
        rule=lambda head: head.shares[2],
        columns="both",
        leaves=6,
        curve=Curve("tab:green", "v"),
        explored=True,
    ),
    Fact(
        "distance",
        "dist",
        "mean distance",
        "tokens",
        "sum_q sum_k A[q, k] |k - q| / queries over pixels, in tokens: attention to class tokens counts as 0",
        "Dosovitskiy et al. 2021, Fig. 7; Raghu et al. 2021, Fig. 1 and Sec. 3, there in pixels",
        rule=lambda head: head.mean("distance"),
        columns="both",
        leaves=5,
        curve=Curve("tab:purple", "d"),
        explored=True,
    ),
    Fact(
        "keys_in_use",
        "keys",
        "keys in use",
        "keys",
        "exp of the mean over queries of -sum_k A log A",
        "entropy: Clark et al. 2019, Sec. 3.2",
        rule=lambda head: float(np.exp(head.mean("entropy"))),
        columns="both",
        leaves=2,
        explored=True,
    ),
    Fact(
        "sink",
        "sink",
        "most read key",
        "share",
        "the largest mean attention to one key over the queries that may read it; a key counts as readable by at least "
        "half as many queries as the key that most queries may read",
        "Xiao et al. 2024",
        rule=SummedHead.sink,
        columns="both",
        leaves=3,
    ),
    Fact(
        "horizontal",
        "hor",
        "horizontal symmetry",
        "share",
        "sum_d min(p(d), p(d')), where p = m / sum m over pixels, and d' is the mirror image of d from left to right; "
        + UNBIASED,
        "Cordonnier et al. 2020, Sec. 4.3: horizontally symmetric patterns",
        estimate=of_patterns(horizontal),
        columns="head",
    ),
    Fact(
        "vertical",
        "ver",
        "vertical symmetry",
        "share",
        "sum_d min(p(d), p(d')) with d' the mirror image of d from top to bottom; not defined on a line; " + UNBIASED,
        "Cordonnier et al. 2020, Sec. 4.3: vertical symmetry is rarer",
        estimate=of_patterns(vertical),
        columns="head",
    ),
    Fact(
        "anisotropy",
        "aniso",
        "anisotropy",
        "share",
        "1 - smallest / largest variance of p along its principal axes; not defined on a line or for one displacement; "
        + UNBIASED,
        "Cordonnier et al. 2020, App. E: isotropic and anisotropic heads",
        estimate=of_patterns(anisotropy),
        columns="head",
    ),
    Fact(
        "overlap",
        "over",
        "overlap with a head",
        "share",
        "the largest sum_d min(p(d), p_g(d)) over the other heads g of the layer; not defined for one head; "
        + UNBIASED,
        "Cordonnier et al. 2020, Sec. 4.2: heads do not overlap",
        estimate=of_patterns(overlap),
        columns="head",
    ),
    Fact(
        "likeness",
        "like",
        "likeness to a head",
        "share",
        "the largest <A, A_g> / |A| |A_g| over the other heads g, with sums over all queries, images and keys, leading "
        "tokens included; not defined for one head",
        "Cordonnier et al. 2020, Sec. 4.3: redundant heads",
        estimate=likeness,
        columns="head",
    ),
    Fact(
        "moved",
        "moved",
        "spread of a moving centre",
        "tokens",
        "sqrt(mean_q |c(x_q) - mean c|^2) with c(x_q) = Delta + (W q) / (2 alpha), the displacement at which the "
        "positional terms score highest; only quadratic heads with the term q.r have it",
        "claim DEFORM; Dai et al. 2017",
        estimate=moved,
        columns="both",
        if_any=True,
    ),
    Fact(
        "extra",
        "extra",
        "leading tokens",
        "share",
        "attention to leading tokens that are not pixels",
        rule=lambda head: head.mean("extra"),
        columns="head",
    ),
    Fact(
        "argmax_at",
        "argmax_at",
        "displacement of the most frequent argmax",
        "displacement",
        "the displacement that is the most frequent argmax",
        rule=lambda head: head.displacement(int(head.sums.argmax[head.head].argmax())),
    ),
    Fact(
        "itself",
        "itself",
        "own position",
        "share",
        "m(0), attention to the query's own position",
        rule=lambda head: float(head.mass[tuple(side // 2 for side in head.mass.shape)]),
    ),
    Fact(
        "around",
        "around",
        "next to the peak",
        "share",
        "the sum of m(d) over the peak and the displacements next to it, diagonals included",
        rule=SummedHead.around,
    ),
    Fact(
        "bar",
        "bar",
        "one row or column",
        "share",
        "the largest sum of m(d) over the displacements in one row, or in one column",
        rule=SummedHead.bar,
    ),
    Fact(
        "evenness",
        "evenness",
        "keys in use / keys",
        "share",
        "the keys in use divided by the keys that a query may read, both as geometric means over queries",
        rule=SummedHead.evenness,
        curve=Curve("tab:gray", "x"),
    ),
    Fact(
        "largest",
        "largest",
        "largest weight",
        "share",
        "the mean over queries of the largest weight",
        rule=lambda head: head.mean("largest"),
    ),
    Fact(
        "span",
        "R2 3x3",
        "3x3 shifts, by the span",
        "share",
        "the mean over 9 shifts E of 1 - |E - span of the heads|^2 / |E|^2, by products of different images; the JSON "
        "document has the centre, the mean and the best shift for kernels of size 1, 3, 5, 7 with dilations 1 to 3",
        "Cordonnier et al. 2020, Lemma 3, graded",
        layer_rule=lambda layer: getattr(layer.span(3), "mean", None),
        columns="layer",
        curve=Curve("tab:orange", "s"),
    ),
    Fact(
        "convolution",
        "conv 3",
        "layer, by a 3x3 convolution",
        "share",
        "the share of the map x -> sum_h A_h x (W_out W_val)_h that the nearest zero-padded 3x3 convolution explains, "
        "in squares, by products of different images; the map includes attention to leading tokens, which no "
        "convolution explains; -v and the JSON document have K = 1, 3, 5, 7",
        layer_rule=lambda layer: getattr(layer.convolution(3), "share", None),
        columns="layer",
        leaves=None,
        curve=Curve("black", "^"),
    ),
    Fact(
        "chance",
        "chance",
        "conv 3 of uniform attention",
        "share",
        "conv 3 of heads that attend uniformly to the keys that a query may read: (sum_d pairs(d)^2 / queries(d)) / "
        "sum_q keys(q). Displacement d is on the grid for queries(d) queries, of which pairs(d) may read the key at d. "
        "R2 3x3 of such heads is the mean of these terms over the shifts, and they have no rel; not defined if queries "
        "may read different numbers of keys",
        layer_rule=lambda layer: getattr(layer.convolution(3), "chance", None),
        columns="layer",
        leaves=4,
    ),
    Fact(
        "coverage",
        "cover",
        "displacements covered",
        "number",
        "the number of displacements that the heads use together: exp of the entropy of the mean of p over the heads; "
        + UNBIASED,
        "Cordonnier et al. 2020, Sec. 4.2: heads cover the input space",
        layer_rule=lambda layer: layer.coverage,
        columns="layer",
    ),
    Fact(
        "redundant_pairs",
        "pairs",
        "redundant pairs",
        "number",
        f"the number of pairs of heads whose <A, A_g> / |A| |A_g| is at least {REDUNDANT:g}; the JSON document has the "
        "error of like instead of an error of this number",
        "Cordonnier et al. 2020, Sec. 4.3: redundant heads",
        layer_rule=lambda layer: layer.redundant_pairs,
        columns="layer",
    ),
    Fact(
        "replay",
        "replay",
        "replay",
        "ratio",
        "max |y - (sum_h A_h x M_h^T + b)| divided by the spread of y over tokens, where M_h and b are the weights as "
        "read, and y is the output of the layer on random tokens, with different random attention in every head",
        layer_rule=lambda layer: layer.replay,
        columns="layer",
        leaves=8,
    ),
    Fact(
        "difference",
        "|layer - conv|",
        "layer less a 3x3 convolution",
        "share",
        "max_q sum_k |L_qk - C_qk| divided by max_q sum_k |L_qk|, with the Frobenius norms of a key's matrices in the "
        "layer L and in the convolution C. The numerator bounds the distance of the outputs if no token is longer than "
        "1. It is shown with -v",
        layer_rule=difference_from_convolution,
    ),
)


def facts_defined() -> tuple[Fact, ...]:
    """All facts, in the order of the table."""
    return FACTS


def facts_shown(line: str) -> tuple[Fact, ...]:
    """The facts that have a column in the rows of heads (`line` is "head") or of layers ("layer")."""
    return tuple(fact for fact in FACTS if fact.columns in (line, "both"))


def leaving(line: str) -> tuple[str, ...]:
    """The titles of the columns that a narrow terminal drops, in the order in which they are dropped."""
    spare = [fact for fact in facts_shown(line) if fact.leaves is not None]
    return tuple(fact.title for fact in sorted(spare, key=lambda fact: fact.leaves or 0))


def facts_drawn() -> tuple[tuple[Fact, Curve], ...]:
    """The facts that are drawn over the layers, each with its curve."""
    return tuple((fact, fact.curve) for fact in FACTS if fact.curve is not None)


def facts_explored() -> tuple[Fact, ...]:
    """The facts on the page of `explore`."""
    return tuple(fact for fact in FACTS if fact.explored)


def estimates_of_heads() -> dict[str, Callable[[Sums], Estimate]]:
    """By name, the estimates that are computed for all heads of a layer at once, with standard errors."""
    return {fact.name: fact.estimate for fact in FACTS if fact.estimate is not None}


def numbers_of_head(head: SummedHead) -> dict[str, Any]:
    """Every number of a head that has a rule, by its name."""
    return {fact.name: fact.rule(head) for fact in FACTS if fact.rule is not None}
