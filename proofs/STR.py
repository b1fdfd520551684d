"""Stride: pooling after the attention equals attention at the strided queries."""

from sympy import Function, IndexedBase, KroneckerDelta, Sum, symbols

from .claim import Claim, step
from .core import index_sums, sign
from .domain import DILATION, KERNEL, SPARE, STRIDE, Domain

Q, H, N, C = symbols("Q H N C", integer=True)
q, out, h, k, c, o, j = symbols("q out h k c o j", integer=True)
P, X, M, b, L = map(IndexedBase, "PXMbL")
site = Function("site")  # the query site of a strided output
s, out_count, sides = symbols("s R S", integer=True)


def layer(query):
    """The layer's output at `query`."""
    return Sum(P[h, query, k] * X[k, c] * M[h, c, o], (h, 1, H), (k, 1, N), (c, 1, C)) + b[o]


CLAIM = Claim(
    name="STR",
    title="Stride by queries or by pooling",
    words="Computing every query and then keeping one in stride (the paper's appended fixed pooling layer) equals "
    "computing only the strided queries, for any attention and any linear pooling; the second costs stride^-n of the "
    "first.",
    formula=r"\sum_q [q = s(p)]\,\mathrm{MHSA}(X)_q = \mathrm{MHSA}(X)_{s(p)}",
    conditions=("every strided site s(p) is a query of the full layer",),
    source="Cordonnier et al. 2020, Section 3, Stride",
    not_shown="The cost, which is counted and not proved.",
    licenses={
        "conv2attn.theory.basis.Sites.without_stride": Domain(
            {"kernel": KERNEL, "dilation": DILATION}, beside={"stride": STRIDE, "keys to spare": SPARE}
        ),
    },
    formal="part: the cost",
    steps=(
        step(
            "Selecting the site after the layer is the layer at the site.",
            index_sums,
            Sum(KroneckerDelta(q, site(out)) * layer(q), (q, 1, Q)),
            layer(site(out)),
            sizes={site: Q},
        ),
        step(
            "Any linear pooling L of the queries, rows summing to 1, is the same layer with pooled attention L P.",
            index_sums,
            Sum(L[out, q] * layer(q), (q, 1, Q)),
            Sum(Sum(L[out, q] * P[h, q, k], (q, 1, Q)) * X[k, c] * M[h, c, o], (h, 1, H), (k, 1, N), (c, 1, C)) + b[o],
            given=((Sum(L[out, q], (q, 1, Q)) - 1) * b[o],),
        ),
        step(
            "The site s p of output p < R is below the side S, when (R - 1) s <= S - 1.",
            sign,
            sides - 1 - s * out,
            ((sides - 1 - (out_count - 1) * s,), (s, out_count - 1 - out)),
            given=(sides - 1 - (out_count - 1) * s, out_count - 1 - out),
            positive=(s,),
        ),
    ),
    mutants=(
        step(
            "Selecting the keys instead of the queries.",
            index_sums,
            Sum(P[h, q, k] * KroneckerDelta(k, site(q)) * X[k, c] * M[h, c, o], (h, 1, H), (k, 1, N), (c, 1, C)),
            Sum(P[h, site(q), k] * X[k, c] * M[h, c, o], (h, 1, H), (k, 1, N), (c, 1, C)),
            instance={H: 1, N: 2, C: 1, q: 1, o: 1, site: lambda p: p},
        ),
        step(
            "Pooling rows that do not sum to 1 keeps the bias as it is.",
            index_sums,
            Sum(L[out, q] * layer(q), (q, 1, Q)),
            Sum(Sum(L[out, q] * P[h, q, k], (q, 1, Q)) * X[k, c] * M[h, c, o], (h, 1, H), (k, 1, N), (c, 1, C)) + b[o],
            instance={Q: 1, H: 1, N: 1, C: 1, out: 1, o: 1},
        ),
        step(
            "The query of the same number, its stride forgotten.",
            index_sums,
            layer(site(out)),
            layer(out),
            instance={H: 1, N: 1, C: 1, out: 2, o: 1, site: lambda p: 2 * p},
        ),
        step(
            "The last site may be the side itself.",
            sign,
            sides - 1 - s * out,
            given=(sides - (out_count - 1) * s, out_count - 1 - out),
            positive=(s,),
            witness={s: 1, sides: 1, out_count: 2, out: 1},
        ),
        step(
            "Each pooled query counted once, whatever its weight.",
            index_sums,
            Sum(L[out, q] * layer(q), (q, 1, Q)),
            Sum(layer(q), (q, 1, Q)),
            instance={Q: 1, H: 1, N: 1, C: 1, out: 1, o: 1},
        ),
    ),
)
