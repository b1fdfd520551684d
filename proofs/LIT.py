"""Lemma 2 and Theorem 1 read as exact equalities: no finite softmax is one-hot."""

from sympy import symbols

from .claim import Claim, step
from .core import identity, sign

own, other, rest = symbols("w_t w_o w_r", positive=True)  # exponentials of scores
p, r, w = symbols("p r w", real=True)  # attention of the pixels 0 and 1 on the pixel 0; the head's weight
total = own + other + rest

CLAIM = Claim(
    name="LIT",
    title="Lemma 2 and Theorem 1 read literally",
    words="A softmax of finite scores over two keys or more gives each key less than 1, so no finite alpha gives the "
    "one-hot attention of Eq. (10); and one head on two pixels is never the 1 x 1 identity convolution, whatever its "
    "scores, even if they depend on X. Lemma 2 and Theorem 1 hold in the limit (L2b, T1) and in floating point (A46).",
    formula=r"\operatorname{softmax}(s)_k < 1 \text{ for } |K| \ge 2;\qquad "
    r"\nexists\, s, w\ \forall X:\ w \sum_k \operatorname{softmax}(s(X)_q)_k X_k = X_q",
    conditions=("real arithmetic; finite scores; at least two keys",),
    source="Cordonnier et al. 2020, Lemma 2 and Theorem 1; the remark on alpha concedes that it needs floats",
    not_shown="That more heads than taps cannot cancel what leaks.",
    licenses={},
    formal="whole",
    errata=("E14",),
    steps=(
        step(
            "1 - w_t/(w_t + w_o + w_r) is a sum of positive terms, w_r the rest of the keys.",
            sign,
            1 - own / total,
            ((other, 1 / total), (rest, 1 / total)),
            positive=(other, rest, total),
            strict=True,
        ),
        step(
            "Two keys alone: the other's weight over the sum is left.",
            sign,
            1 - own / (own + other),
            ((other, 1 / (own + other)),),
            positive=(other, own + other),
            strict=True,
        ),
        step(
            "The image (0, 1): pixel 0 reads (1 - p) w, which must be 0; as 1 - p is not 0, w is 0 ...",
            identity,
            w,
            0,
            given=((1 / (1 - p), (1 - p) * w),),
        ),
        step(
            "... and then pixel 1 reads (1 - r) w = 0, where 1 was asked for.",
            identity,
            (1 - r) * w,
            0,
            given=((1 - r, w),),
        ),
    ),
    mutants=(
        step("The target's share is 1.", identity, own / (own + other), 1),
        step(
            "Two keys: the target's share exceeds 1/2 for all scores.",
            sign,
            2 * own / (own + other) - 1,
            strict=True,
            witness={own: 1, other: 2},
        ),
        step(
            "One head with scores that favour pixel 0 gives the image (0, 1) back at pixel 1.", identity, (1 - r) * w, 1
        ),
        step(
            "The target's share is at least 1 - e^-gap, the other keys forgotten: three keys, gap 1.",
            sign,
            own / total - (1 - other / own),
            positive=(own - other,),
            witness={own: 2, other: 1, rest: 100},
        ),
        step("Attention of two pixels that sums to less than 1 on one key and 1 on both.", identity, p + (1 - p), p),
    ),
)
