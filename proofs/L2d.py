"""Separability: the softmax of an axis-aligned quadratic head over a box is a product of softmaxes, one an axis."""

from sympy import IndexedBase, KroneckerDelta, Sum, symbols

from .claim import Claim, step
from .core import identity, index_sums
from .domain import Domain, Integers, Many

n, A, B = symbols("n A B", integer=True)
i, x, y, q, r, c = symbols("i x y q r c", integer=True)
F, G, Zf, Zg, f0, f1, g0, g1, e = symbols("F G Z_F Z_G f_0 f_1 g_0 g_1 e", positive=True)
f, g, delta, alpha, centre, P, R, X = map(IndexedBase, ["f", "g", "delta", "alpha", "Delta", "P", "R", "X"])

CLAIM = Claim(
    name="L2d",
    title="Separable attention",
    words="Over a box, a head whose score is a sum over axes has as its softmax the outer product of the softmaxes of "
    "the axes; mixing the tokens by it is mixing the rows, then the columns. For every alpha and every real centre, "
    "also with a different alpha on each axis.",
    formula=r"\operatorname{softmax}_{k \in \prod_i K_i}\Bigl(\sum_i a_i(k_i)\Bigr)"
    r" = \prod_i \operatorname{softmax}_{k_i \in K_i} a_i(k_i)",
    conditions=(
        "the key set is a product of one finite non-empty set an axis (a box, a dilated box), not a masked box",
        "the score is a sum of one term an axis: isotropic or axis-aligned, not a full covariance",
        "exp(a + b) = exp(a) exp(b)",
    ),
    source="this project",
    not_shown="Rounding. n axes follow by induction, the first factor standing for the axes done; the induction is "
    "read by a person here and checked in the formal layer.",
    licenses={
        "conv2attn.theory.basis.apply": Domain(
            {"centre": Many(Integers(-64, 64, 8), 1, 3), "alpha": Integers(1, 1024, 64)},
            beside={"sides": Many(Integers(1, 4), 1, 3)},
        ),
    },
    formal="whole",
    steps=(
        step(
            "The quadratic score with one alpha an axis is a sum over axes.",
            index_sums,
            -Sum(alpha[i] * (delta[i] - centre[i]) ** 2, (i, 1, n)),
            Sum(-alpha[i] * delta[i] ** 2 + 2 * alpha[i] * delta[i] * centre[i] - alpha[i] * centre[i] ** 2, (i, 1, n)),
        ),
        step(
            "The partition function of a product of weights over a product of key sets is the product of theirs.",
            index_sums,
            Sum(f[x] * g[y], (x, 1, A), (y, 1, B)),
            Sum(f[x], (x, 1, A)) * Sum(g[y], (y, 1, B)),
        ),
        step("So the softmax is the product of the softmaxes.", identity, (F * G) / (Zf * Zg), (F / Zf) * (G / Zg)),
        step(
            "Mixing by the outer product is mixing along one axis, then along the other.",
            index_sums,
            Sum(P[q, x] * R[r, y] * X[x, y, c], (x, 1, A), (y, 1, B)),
            Sum(P[q, x] * Sum(R[r, y] * X[x, y, c], (y, 1, B)), (x, 1, A)),
        ),
        step(
            "The product of the axes' one-hot rows is one-hot.",
            index_sums,
            Sum(KroneckerDelta(x, q) * KroneckerDelta(y, r) * X[x, y, c], (x, 1, A), (y, 1, B)),
            X[q, r, c],
            sizes={q: A, r: B},
        ),
    ),
    mutants=(
        step(
            "The same on a masked key set: a 2 x 2 box without one corner.",
            identity,
            f0 * g0 + f0 * g1 + f1 * g0,
            (f0 + f1) * (g0 + g1),
        ),
        step(
            "The same for a full covariance: 2 x 2 keys whose corner gains a cross term, factor e != 1.",
            identity,
            (f1 * g1 * e) / (f0 * g0 + f0 * g1 + f1 * g0 + f1 * g1 * e),
            (f1 / (f0 + f1)) * (g1 / (g0 + g1)),
        ),
        step(
            "The first axis mixed twice.",
            index_sums,
            Sum(P[q, x] * R[r, y] * X[x, y, c], (x, 1, A), (y, 1, B)),
            Sum(P[q, x] * P[r, y] * X[x, y, c], (x, 1, A), (y, 1, B)),
            instance={A: 1, B: 1, q: 1, r: 1, c: 1},
        ),
        step(
            "A sum of products is the product of the sums over one axis.",
            index_sums,
            Sum(f[x] * g[x], (x, 1, A)),
            Sum(f[x], (x, 1, A)) * Sum(g[x], (x, 1, A)),
            instance={A: 2},
        ),
        step(
            "The columns mixed with the weights of the rows.",
            index_sums,
            Sum(P[q, x] * R[r, y] * X[x, y, c], (x, 1, A), (y, 1, A)),
            Sum(P[q, x] * P[r, y] * X[x, y, c], (x, 1, A), (y, 1, A)),
            instance={A: 1, q: 1, r: 1, c: 1},
        ),
    ),
)
