"""The generalised quadratic encoding: a full covariance in D_p = n (n + 3) / 2 dimensions."""

from sympy import IndexedBase, KroneckerDelta, Rational, Sum, symbols

from .claim import Claim, refutation, step
from .core import identity, index_sums, sign
from .domain import FLAG, Array, Domain, Integers, anything

n = symbols("n", integer=True)
i, j, k, p = symbols("i j k p", integer=True)
S, d, D, B, inverse, before, key, query = map(IndexedBase, ["S", "delta", "Delta", "B", "C", "L", "k", "q"])
half = Rational(1, 2)
s11, s12, s22, x, y, u, v, lam, gap = symbols("s_11 s_12 s_22 delta_1 delta_2 Delta_1 Delta_2 lambda g", real=True)


def pairs(term):
    """The double sum over all axes of `term`."""
    return Sum(term, (i, 1, n), (j, 1, n))


symmetric = S[i, j] - S[j, i]
score = -half * pairs((d[i] - D[i]) * S[i, j] * (d[j] - D[j]))
expanded = pairs(S[i, j] * D[j] * d[i]) - half * pairs(S[i, j] * d[i] * d[j]) - half * pairs(D[i] * S[i, j] * D[j])
one_order = before[i, j] + before[j, i] + KroneckerDelta(i, j) - 1
printed = x * (s11 * u + s12 * v) + y * (s12 * u + s22 * v) - half * (s11 * x**2 + s22 * y**2 + 2 * s12 * x * y)

CLAIM = Claim(
    name="GQ",
    title="The generalised quadratic encoding",
    words="With the precision S = Sigma^-1 the score -1/2 (delta - Delta)' S (delta - Delta) is, up to a constant, the "
    "inner product of the n (n + 3)/2 numbers delta_i, delta_i delta_j (i <= j) with a vector of the head. If S is "
    "positive definite and the centre is a pixel of the grid, it is the only peak; with S >= lambda I the leak is that "
    "of an isotropic head with alpha = lambda/2. As features of keys it needs n (n + 3)/2 absolute numbers.",
    formula=r"-\tfrac12(\delta-\Delta)^\top S(\delta-\Delta) = \sum_i (S\Delta)_i\,\delta_i - \tfrac12\sum_i S_{ii}"
    r"\delta_i^2 - \sum_{i<j} S_{ij}\delta_i\delta_j - \tfrac12\Delta^\top S\Delta",
    conditions=(
        "S symmetric; for the peak positive definite, and the centre q + Delta a key (outside the grid: PAD)",
        "learned as S = B'B it is positive semi-definite for every B, definite if and only if B is invertible",
    ),
    source="Cordonnier et al. 2020, Appendix E, Eqs. (18), (19)",
    not_shown="A lower bound lambda of the eigenvalues of given floats: exact elimination certifies it.",
    licenses={
        "conv2attn.theory.bounds.smallest_eigenvalue_at_least": Domain(
            {"axes": Integers(1, 3), "B": Array(Integers(1, 32)), "skew": Integers(0, 64, 4), "isotropic": FLAG},
            ("of B'B/4 + I/4, or a multiple of I, and a part that is not symmetric", anything),
        ),
    },
    formal="part: the features of keys; and a definite form is one with a lambda > 0",
    steps=(
        step(
            "The score is (S Delta) . delta - 1/2 delta' S delta - 1/2 Delta' S Delta, S symmetric.",
            index_sums,
            score,
            expanded,
            given=(half * pairs(symmetric * D[i] * d[j]),),
        ),
        step(
            "The double sum needs each pair once: delta' S delta = sum S_ii delta_i^2 + 2 sum_(i<j) S_ij delta_i "
            "delta_j, with L[i, j] = [i < j], so that L[i, j] + L[j, i] + [i = j] = 1.",
            index_sums,
            pairs(S[i, j] * d[i] * d[j]),
            Sum(S[i, i] * d[i] ** 2, (i, 1, n)) + 2 * pairs(before[i, j] * S[i, j] * d[i] * d[j]),
            given=(-pairs(one_order * S[i, j] * d[i] * d[j]), pairs(before[j, i] * symmetric * d[i] * d[j])),
        ),
        step("That is n + n (n + 1)/2 = n (n + 3)/2 components.", identity, n + n * (n + 1) / 2, n * (n + 3) / 2),
        step(
            "n = 2: the vector printed below Eq. (19) gives this score.",
            identity,
            printed - half * (s11 * u**2 + 2 * s12 * u * v + s22 * v**2),
            -half * (s11 * (x - u) ** 2 + 2 * s12 * (x - u) * (y - v) + s22 * (y - v) ** 2),
        ),
        step(
            "S = B'B: the form is a sum of squares |B e|^2, never negative ...",
            index_sums,
            pairs(d[i] * Sum(B[p, i] * B[p, j], (p, 1, n)) * d[j]),
            Sum(Sum(B[p, i] * d[i], (i, 1, n)) * Sum(B[p, j] * d[j], (j, 1, n)), (p, 1, n)),
        ),
        step(
            "... and B e = 0 only for e = 0, when C B = I: so it is positive off the centre, the only peak.",
            index_sums,
            d[k],
            Sum(inverse[k, p] * Sum(B[p, i] * d[i], (i, 1, n)), (p, 1, n)),
            sizes={k: n},
            given=(-Sum((Sum(inverse[k, p] * B[p, i], (p, 1, n)) - KroneckerDelta(k, i)) * d[i], (i, 1, n)),),
        ),
        step(
            "S >= lambda I, e' S e = lambda |e|^2 + gap: the score is at most that of the isotropic head, alpha = "
            "lambda/2.",
            sign,
            -half * lam * x - (-half * (lam * x + gap)),
            ((half, gap),),
            given=(gap,),
        ),
        step(
            "Absolute features: e = k - q - Delta; up to terms of q alone the score is linear in k_i and k_i k_j.",
            index_sums,
            -half * pairs((key[i] - query[i] - D[i]) * S[i, j] * (key[j] - query[j] - D[j])),
            pairs(S[i, j] * (query[j] + D[j]) * key[i])
            - half * pairs(S[i, j] * key[i] * key[j])
            - half * pairs((query[i] + D[i]) * S[i, j] * (query[j] + D[j])),
            given=(half * pairs(symmetric * (query[i] + D[i]) * key[j]),),
        ),
        refutation(
            "A singular covariance has ties: S = [[1, -1], [-1, 1]] does not separate (1, 1) from its centre (0, 0).",
            sign,
            s11 * x**2 + 2 * s12 * x * y + s22 * y**2,
            strict=True,
            witness={s11: 1, s12: -1, s22: 1, x: 1, y: 1},
        ),
    ),
    mutants=(
        step(
            "The printed vector with -S_12 for -2 S_12.",
            identity,
            printed + half * s12 * x * y - half * (s11 * u**2 + 2 * s12 * u * v + s22 * v**2),
            -half * (s11 * (x - u) ** 2 + 2 * s12 * (x - u) * (y - v) + s22 * (y - v) ** 2),
        ),
        step("D_p = n (n + 1)/2 components.", identity, n + n * (n + 1) / 2, n * (n + 1) / 2),
        step(
            "Positive semi-definite is enough for a unique peak.",
            sign,
            s11 * x**2 + 2 * s12 * x * y + s22 * y**2,
            given=(s11, s22, s11 * s22 - s12**2),
            positive=(x, y),
            strict=True,
            witness={s11: 1, s12: -1, s22: 1, x: 1, y: 1},
        ),
        step("The expansion without symmetry of S.", index_sums, score, expanded, instance={n: 2}),
        step(
            "With S <= lambda I the leak is that of alpha = lambda/2: a flatter head leaks more.",
            sign,
            s11 * x**2 - lam * x**2,
            given=(lam - s11,),
            positive=(s11,),
            witness={s11: 1, lam: 2, x: 1},
        ),
    ),
)
