"""Theorem 1, the clause on head sizes: the rank of a tap is what a head must afford."""

from fractions import Fraction

from sympy import Function, IndexedBase, KroneckerDelta, Matrix, Sum, symbols

from .claim import Claim, refutation, step
from .core import finite, identity, index_sums, spans
from .domain import FLAG, Array, Domain, Integers

H, Q, N, C, D, Co = symbols("H Q N C D C_o", integer=True)
h, g, q, k, c, o, p, k0, c0, e = symbols("h g q k c o p k_0 c_0 e", integer=True)
P, X, M, U, V, dual = map(IndexedBase, ["P", "X", "M", "U", "V", "G"])
reads, kept = Function("reads"), Function("kept")  # key of a head; output channel that a kept component feeds
u0, u1, v0, v1 = symbols("u_0 u_1 v_0 v_1")

factored = Sum(P[h, q, k] * X[k, c] * Sum(U[h, c, p] * V[h, p, o], (p, 1, D)), (h, 1, H), (k, 1, N), (c, 1, C))
taps = Sum(P[h, q, k] * X[k, c] * M[h, c, o], (h, 1, H), (k, 1, N), (c, 1, C))
excess = Sum(U[h, c, p] * V[h, p, o], (p, 1, D)) - M[h, c, o]
same_map = Sum(P[h, q, k] * excess, (h, 1, H))
dual_of = Sum(dual[g, q, k] * P[h, q, k], (q, 1, Q), (k, 1, N)) - KroneckerDelta(g, h)

TAPS = ([Fraction(3, 4), 0, 0, Fraction(1, 4)], [Fraction(1, 4), 0, 0, Fraction(3, 4)])  # E7, 2 x 2 row-major
MIXTURES = ([Fraction(3, 4), Fraction(1, 4)], [Fraction(1, 4), Fraction(3, 4)])  # two soft heads over the two shifts
RANK_ONE = ([1, 0, 0, 0], [0, 0, 0, 1])  # their matrices diag(1, 0) and diag(0, 1)
SOFT = [[sum(m[t] * r[i] for m, r in zip(MIXTURES, RANK_ONE, strict=True)) for i in range(4)] for t in range(2)]

CLAIM = Claim(
    name="T1p",
    title="Theorem 1: how wide a head must be",
    words="With linearly independent attention maps, one head a tap, the layer expresses the convolution if and only "
    "if d_head >= rank W_h for every tap, which serves hard heads whether or not each tap sees a pixel; so "
    "min(D_in, D_out) always serves and the paper's D_h >= D_out is more than "
    "is needed; any d_head output channels of d_out can be expressed. The W_h are the matrices of the expansion over "
    "the heads' maps. For hard heads these are the taps; for soft heads they are not, and can have lower rank than the "
    "taps. W_val W_out has rank at most D_h, not D_out - D_h.",
    formula=r"\exists U_h \in \mathbb{R}^{D_{in} \times d},\ V_h \in \mathbb{R}^{d \times D_{out}}:\ "
    r"\sum_h P^h X U_h V_h = \sum_h P^h X W_h\ \forall X \iff d \ge \max_h \operatorname{rank} W_h",
    conditions=(
        "one head a tap, maps P^h linearly independent: so it is for one-hot heads as soon as one query reads distinct "
        "keys",
        "the rank of a matrix is the least d for which it is a product of a D_in x d and a d x D_out matrix",
    ),
    source="Cordonnier et al. 2020, Theorem 1 and the remark about D_h and D_out, corrected by this project",
    not_shown="Numerical rank of floats. The least width for dependent maps, whose W_h are not unique, is not given.",
    licenses={
        "conv2attn.layers.theorem.construction.head_width": Domain(
            {
                "d_in a group": Integers(1, 8),
                "d_out a group": Integers(1, 8),
                "groups": Integers(1, 4),
                "width": Integers(-4, 64),
                "asked for": FLAG,
            }
        ),
        "conv2attn.layers.theorem.construction.factors": Domain(
            {
                "taps": Array(Integers(1, 2**26)),
                "heads": Integers(1, 9),
                "groups": Integers(1, 4),
                "d_out a group": Integers(1, 6),
                "d_in a group": Integers(1, 6),
                "spare width": Integers(0, 6),
            }
        ),
    },
    formal="whole",
    errata=("E3", "E7", "E13"),
    steps=(
        step(
            "Sufficient: factors U_h V_h = W_h as value and output weights give the convolution.",
            index_sums,
            factored,
            taps,
            given=(Sum(P[h, q, k] * X[k, c] * excess, (h, 1, H), (k, 1, N), (c, 1, C)),),
        ),
        step(
            "min(D_in, D_out) serves: value the identity (d = D_in) and output the tap ...",
            index_sums,
            Sum(KroneckerDelta(c, p) * M[h, p, o], (p, 1, C)),
            M[h, c, o],
            sizes={c: C},
        ),
        step(
            "... or output the identity (d = D_out) and value the tap.",
            index_sums,
            Sum(M[h, c, p] * KroneckerDelta(p, o), (p, 1, Co)),
            M[h, c, o],
            sizes={o: Co},
        ),
        step(
            "Necessary: on the image of one pixel k0, channel c0, the layer gives sum_h P^h[q, k0] (U_h V_h)[c0, o], "
            "so layers equal for all X have equal sum_h P^h U_h V_h ...",
            index_sums,
            factored.xreplace({X[k, c]: KroneckerDelta(k, k0) * KroneckerDelta(c, c0)}),
            Sum(P[h, q, k0] * Sum(U[h, c0, p] * V[h, p, o], (p, 1, D)), (h, 1, H)),
            sizes={k0: N, c0: C},
        ),
        step(
            "... and independent maps have dual maps G; if sum_h P^h (U_h V_h - W_h) = 0 then U_g V_g = W_g for each "
            "g.",
            index_sums,
            excess.xreplace({h: g}),
            0,
            sizes={g: H},
            given=(
                Sum(dual[g, q, k] * same_map, (q, 1, Q), (k, 1, N)),
                -Sum(dual_of * excess, (h, 1, H)),
            ),
        ),
        step(
            "One-hot heads that read distinct keys at a query q0 are independent: G[g, q0, k] = [k = reads(g)] is "
            "dual.",
            index_sums,
            Sum(KroneckerDelta(k, reads(g)) * KroneckerDelta(k, reads(h)), (k, 1, N)),
            KroneckerDelta(g, h),
            sizes={reads: N},
            given=(KroneckerDelta(reads(g), reads(h)) - KroneckerDelta(g, h),),
        ),
        step(
            "The min(D_h, D_out) clause: value = the kept columns of the tap, output = their places, gives those "
            "channels.",
            index_sums,
            Sum(M[h, c, kept(p)] * KroneckerDelta(kept(p), kept(e)) * X[k, c], (p, 1, D)),
            M[h, c, kept(e)] * X[k, c],
            sizes={e: D},
            given=(
                Sum(M[h, c, kept(p)] * X[k, c] * (KroneckerDelta(kept(p), kept(e)) - KroneckerDelta(p, e)), (p, 1, D)),
            ),
        ),
        step(
            "Width 1 never reaches rank 2: the determinant of U V is 0 for all U (2 x 1) and V (1 x 2).",
            identity,
            (Matrix([u0, u1]) * Matrix([[v0, v1]])).det(),
            0,
        ),
        step(
            "E7: the taps diag(3/4, 1/4) and diag(1/4, 3/4) both have rank 2: their determinant is 3/16 ...",
            finite,
            TAPS,
            lambda tap: tap[0] * tap[3] - tap[1] * tap[2] == Fraction(3, 16),
            count=2,
        ),
        step(
            "... yet two soft heads (3/4, 1/4) and (1/4, 3/4) with the rank-one matrices diag(1, 0), diag(0, 1) give "
            "both.",
            finite,
            list(zip(SOFT, TAPS, strict=True)),
            lambda pair: pair[0] == pair[1],
            count=2,
        ),
        step("... and these heads are linearly independent: they span both shifts.", spans, MIXTURES, [[1, 0], [0, 1]]),
        refutation(
            "E3: a head with D_h = 1, D_in = D_out = 3 has rank 1, not D_out - D_h = 2: its rows span a line.",
            spans,
            [[1, 1, 1]],
            [[1, 2, 3]],
        ),
    ),
    mutants=(
        step(
            "Width rank - 1 is enough: U V of width 1 can have determinant 1.",
            identity,
            (Matrix([u0, u1]) * Matrix([[v0, v1]])).det(),
            1,
        ),
        step(
            "Dependent maps force U_h V_h = W_h too: with P^1 = P^2 only the sum is determined.",
            index_sums,
            Sum(P[1, q, k] * X[k], (k, 1, N)) * (M[1] + M[2]),
            Sum(P[1, q, k] * X[k], (k, 1, N)) * 2 * M[1],
            instance={N: 1, q: 1},
        ),
        step(
            "Every 2 x 2 tap has a factor of width 1: rank 2 in the span of one row.", spans, [[1, 0]], [[1, 0], [0, 1]]
        ),
        step(
            "The kept channels at the places of the first ones, whichever are kept.",
            index_sums,
            Sum(M[h, c, kept(p)] * KroneckerDelta(p, e) * X[k, c], (p, 1, D)),
            M[h, c, e] * X[k, c],
            sizes={e: D, kept: Co},
            instance={D: 1, Co: 2, h: 1, c: 1, k: 1, e: 1, kept: lambda p: p + 1},
        ),
        step(
            "Heads that read one key are independent.",
            index_sums,
            Sum(KroneckerDelta(k, reads(g)) * KroneckerDelta(k, reads(h)), (k, 1, N)),
            KroneckerDelta(g, h),
            sizes={reads: N},
            instance={N: 1, g: 1, h: 2, reads: lambda h: h * 0 + 1},
        ),
    ),
)
