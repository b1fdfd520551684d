"""Lemma 2, the encoding: the quadratic encoding's score is a squared distance to the head's centre."""

from sympy import Function, IndexedBase, KroneckerDelta, Sum, symbols

from .claim import Claim, refutation, step
from .core import index_sums
from .domain import HEADS_ON_GRIDS

n, p = symbols("n p", integer=True)  # number of axes, width of the keys
i, j, a = symbols("i j a", integer=True)
alpha = symbols("alpha", positive=True)
delta, centre, v, r, wide = map(IndexedBase, ["delta", "Delta", "v", "r", "v'"])
row_of = Function("row_of")  # which row of the key space holds component a of the encoding

norm = Sum(delta[i] ** 2, (i, 1, n))
distance = Sum((delta[i] - centre[i]) ** 2, (i, 1, n))
centre_norm = Sum(centre[i] ** 2, (i, 1, n))
score = -alpha * (
    1 * norm + Sum(-2 * centre[i] * delta[i], (i, 1, n))
)  # v . r, v = -alpha (1, -2 Delta), r = (|d|^2, d)

CLAIM = Claim(
    name="L2a",
    title="Lemma 2: the quadratic encoding",
    words="With v = -alpha (1, -2 Delta) and r = (|delta|^2, delta), the score v . r is -alpha (|delta - Delta|^2 - "
    "|Delta|^2), in any number n of dimensions; the encoding has D_p = n + 1 components.",
    formula=r"v \cdot r_\delta = -\alpha\left(\|\delta - \Delta\|^2 - \|\Delta\|^2\right)",
    conditions=("W_qry = W_key = 0; the position key map embeds R^(n+1) in the key space, so d_key >= n + 1",),
    source="Cordonnier et al. 2020, Lemma 2, Eqs. (9), (14); n dimensions: slides of Lau 2021",
    not_shown="Anything about floats: the expanded form loses the peak in low precision, so the code computes the "
    "squared distance from integers.",
    licenses={
        "conv2attn.theory.basis.QuadraticSoftmax": HEADS_ON_GRIDS,
    },
    formal="whole",
    steps=(
        step("v . r = -alpha (|delta - Delta|^2 - |Delta|^2).", index_sums, score, -alpha * (distance - centre_norm)),
        step(
            "A position key map with one 1 a component (d_key >= D_p), and v' holding v there, gives the score v . r.",
            index_sums,
            Sum(wide[j] * KroneckerDelta(j, row_of(a)) * r[a], (j, 1, p), (a, 1, n)),
            Sum(v[a] * r[a], (a, 1, n)),
            sizes={row_of: p},
            given=(Sum((wide[row_of(a)] - v[a]) * r[a], (a, 1, n)),),
        ),
        refutation(
            "Two components are too few for this encoding: leaving |delta|^2 out changes the score.",
            index_sums,
            score + alpha * norm,
            -alpha * (distance - centre_norm),
            instance={n: 2},
        ),
    ),
    mutants=(
        step(
            "The same with v = -alpha (1, -Delta).",
            index_sums,
            -alpha * (norm - Sum(centre[i] * delta[i], (i, 1, n))),
            -alpha * (distance - centre_norm),
            instance={n: 1},
        ),
        step(
            "The same with the opposite sign of the centre (k - q for q - k).",
            index_sums,
            -alpha * (norm + 2 * Sum(centre[i] * delta[i], (i, 1, n))),
            -alpha * (distance - centre_norm),
            instance={n: 2},
        ),
        step(
            "alpha forgotten in the score.",
            index_sums,
            score,
            -(distance - centre_norm),
            instance={n: 1},
        ),
        step(
            "Every axis of the centre with every axis of the displacement.",
            index_sums,
            -alpha * (norm - 2 * Sum(centre[i] * delta[j], (i, 1, n), (j, 1, n))),
            -alpha * (distance - centre_norm),
            instance={n: 2},
        ),
        step(
            "A position key map that puts two components in one row.",
            index_sums,
            Sum(v[j] * KroneckerDelta(j, row_of(a)) * r[a], (j, 1, p), (a, 1, n)),
            Sum(v[a] * r[a], (a, 1, n)),
            sizes={row_of: p},
            instance={n: 2, p: 2, row_of: lambda a: a * 0 + 1},
        ),
    ),
)
