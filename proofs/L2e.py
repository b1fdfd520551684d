"""Absolute form: the softmax of a quadratic head from inner products of n + 1 absolute features."""

from sympy import IndexedBase, Sum, symbols

from .claim import Claim, step
from .core import identity, index_sums
from .domain import HEADS_ON_GRIDS

n, N = symbols("n N", integer=True)
i, k = symbols("i k", integer=True)
alpha, F, S, shift = symbols("alpha F S C", positive=True)
key, query, centre, origin, E = map(IndexedBase, ["k", "q", "Delta", "m", "E"])

score = -alpha * Sum((key[i] - query[i] - centre[i]) ** 2, (i, 1, n))
features = Sum(2 * alpha * (query[i] + centre[i]) * key[i], (i, 1, n)) - alpha * Sum(key[i] ** 2, (i, 1, n))
of_query = -alpha * Sum((query[i] + centre[i]) ** 2, (i, 1, n))
moved = -alpha * Sum(((key[i] - origin[i]) - (query[i] - origin[i]) - centre[i]) ** 2, (i, 1, n))

CLAIM = Claim(
    name="L2e",
    title="Absolute features",
    words="-alpha |k - q - Delta|^2 is the inner product of the query feature (2 alpha (q + Delta), -alpha) with the "
    "key feature (k, |k|^2), n + 1 numbers each, plus a term of the query alone, which the softmax drops. Centring the "
    "coordinates changes nothing.",
    formula=r"\operatorname{softmax}_k\left(-\alpha\|k-q-\Delta\|^2\right) = "
    r"\operatorname{softmax}_k\left\langle(2\alpha(q+\Delta), -\alpha), (k, \|k\|^2)\right\rangle",
    conditions=("any n, real centres and any alpha > 0; a finite non-empty key set; exp(a + b) = exp(a) exp(b)",),
    source="this project; the form is what scaled_dot_product_attention evaluates",
    not_shown="Rounding: the features grow like the square of the side, so the side of the grid decides in which float "
    "type this is usable. A full covariance is GQ.",
    licenses={
        "conv2attn.theory.basis.QuadraticSoftmax.features": HEADS_ON_GRIDS,
    },
    formal="whole",
    steps=(
        step(
            "The score is the inner product of the features minus alpha |q + Delta|^2.",
            index_sums,
            score,
            features + of_query,
        ),
        step("Keys and queries counted from any origin m have the same scores.", index_sums, moved, score),
        step(
            "A factor C = exp(term of the query) common to all keys comes out of the partition function ...",
            index_sums,
            Sum(E[k] * shift, (k, 1, N)),
            shift * Sum(E[k], (k, 1, N)),
        ),
        step(
            "... and cancels in the softmax, numerator E_k C over partition C S.",
            identity,
            F * shift / (S * shift),
            F / S,
        ),
    ),
    mutants=(
        step(
            "The same with key feature (k, 2 |k|^2).",
            index_sums,
            score,
            features - alpha * Sum(key[i] ** 2, (i, 1, n)) + of_query,
            instance={n: 1},
        ),
        step(
            "The same with q - Delta in the query feature.",
            index_sums,
            score,
            features - Sum(4 * alpha * centre[i] * key[i], (i, 1, n)) + of_query,
            instance={n: 2},
        ),
        step(
            "alpha, and not 2 alpha, in the query feature.",
            index_sums,
            features - Sum(alpha * (query[i] + centre[i]) * key[i], (i, 1, n)) + of_query,
            score,
            instance={n: 1},
        ),
        step(
            "The dropped term depends on the key: |k + Delta|^2.",
            index_sums,
            features - alpha * Sum((key[i] + centre[i]) ** 2, (i, 1, n)),
            score,
            instance={n: 1},
        ),
        step(
            "Only the keys centred.",
            index_sums,
            -alpha * Sum(((key[i] - origin[i]) - query[i] - centre[i]) ** 2, (i, 1, n)),
            score,
            instance={n: 2},
        ),
    ),
)
