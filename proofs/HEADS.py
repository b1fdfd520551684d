"""How few position-only heads a given convolution needs: the rank of its tap matrix, or one more."""

from fractions import Fraction
from math import prod

from sympy import IndexedBase, KroneckerDelta, Sum, symbols

from .claim import Claim, refutation, step
from .core import finite, identity, index_sums, sign, spans
from .domain import Array, Domain, Integers, Many

H, T, C, J = symbols("H T C J", integer=True)
h, t, c, j = symbols("h t c j", integer=True)
W, B, M, cols, rows, first = map(IndexedBase, ["W", "B", "M", "c", "R", "R_u"])
weights, u, total, y, z = map(IndexedBase, ["x", "u", "s", "y", "z"])
left, m, bt, other, ct = symbols("B_ht m b_t S c_t", real=True)

factored = W[t, c] - Sum(B[h, t] * M[h, c], (h, 1, H))
based = W[t, c] - Sum(cols[t, j] * rows[j, c], (j, 1, J))
EDGE = [-1, 0, 1]  # the taps of a derivative: rank 1
TWO = [[Fraction(1, 4), Fraction(1, 4), Fraction(1, 2)], [Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)]]

CLAIM = Claim(
    name="HEADS",
    title="The smallest number of heads",
    words="Position-only heads whose attention lives on the kernel's neighbourhood (masked to it) "
    "express a given convolution with tap matrix W (taps x channel pairs) of rank r > 0 with at least r heads. r "
    "suffice if and only if the column space of W, its space of tap patterns, holds a vector that is positive on every "
    "non-zero tap (then it is 0 on the others): a rational linear programme. Otherwise r + 1 are needed, and suffice.",
    formula=r"\min\{H: W = B^\top M,\ B \ge 0,\ B\mathbf{1} = \mathbf{1}\} = r\ \text{if}\ \exists x:\ (Wx)_t > 0\ "
    r"\forall t: W_t \ne 0,\quad\text{else}\ r + 1",
    conditions=(
        "the attention of a head is the same non-negative pattern over the taps at every query whose neighbourhood is "
        "on the grid, summing to 1, and does not depend on X; head width at least min(D_in, D_out)",
        "r = 0, the zero convolution, needs no head",
        "a softmax is positive everywhere, so zeros in a pattern are masks; r + 1 strictly positive patterns "
        "on the neighbourhood suffice",
        "the rank is the least number of columns c_j with W = sum_j c_j R_j",
    ),
    source="this project",
    not_shown="Heads that look beyond the neighbourhood and cancel there; that the alternative of the linear programme "
    "(Gordan: some x, or some y >= 0, y != 0 on the non-zero taps with y'W = 0) is complete, which is classical.",
    licenses={
        "conv2attn.proofs.fewest_heads": Domain(
            {
                "kernel": Many(Integers(1, 6), 1, 2),
                "d_out": Integers(1, 3),
                "d_in": Integers(1, 3),
                "groups": Integers(1, 2),
                "taps": Array(Integers(1, 2**10)),
            },
            ("at most 6 taps", lambda kernel, *others: prod(kernel) <= 6),
        ),
    },
    formal="whole",
    steps=(
        step(
            "At least r: a layer of H heads that is the convolution (L3, Phi = B') writes W as H terms B_h (x) M_h.",
            index_sums,
            W[t, c],
            Sum(B[h, t] * M[h, c], (h, 1, H)),
            given=(factored,),
        ),
        step(
            "r suffice: u = W x, positive on the non-zero taps, is part of a basis u, c_1, ..., c_(r-1) of the space; "
            "the r patterns u and c_j + m u give W = sum_j (c_j + m u) R_j + u (R_u - m sum_j R_j) ...",
            index_sums,
            Sum((cols[t, j] + m * u[t]) * rows[j, c], (j, 1, J)) + u[t] * (first[c] - m * Sum(rows[j, c], (j, 1, J))),
            W[t, c],
            given=(u[t] * first[c] + Sum(cols[t, j] * rows[j, c], (j, 1, J)) - W[t, c],),
        ),
        step(
            "... and they are >= 0 for m large: c_t + m u_t >= 0 when u_t > 0 and m >= -c_t/u_t.",
            sign,
            ct + m * bt,
            ((bt, m + ct / bt),),
            given=(m + ct / bt,),
            positive=(bt,),
        ),
        step(
            "Scaling a pattern by its sum s > 0 makes it an attention row; the parameters take s.",
            index_sums,
            Sum(total[h] * (B[h, t] / total[h]) * M[h, c], (h, 1, H)),
            Sum(B[h, t] * M[h, c], (h, 1, H)),
        ),
        step(
            "Conversely, r heads with W = B'M of rank r: M has a right inverse z, so every pattern B_h is W z_h, in "
            "the space.",
            index_sums,
            Sum(W[t, c] * z[c, j], (c, 1, C)),
            B[j, t],
            sizes={j: H},
            given=(
                Sum(factored * z[c, j], (c, 1, C)),
                Sum(B[h, t] * (Sum(M[h, c] * z[c, j], (c, 1, C)) - KroneckerDelta(h, j)), (h, 1, H)),
            ),
        ),
        step(
            "Their sum is then in the space, >= 0, and positive where some B_ht > 0; a non-zero tap has one, else W_t "
            "= sum_h B_ht M_h would be 0.",
            sign,
            left + other,
            ((left,), (other,)),
            given=(other,),
            positive=(left,),
            strict=True,
        ),
        step(
            "r + 1 suffice: the patterns 1 and c_j + m, with W = sum_j (c_j + m) R_j - 1 (m sum_j R_j).",
            index_sums,
            Sum((cols[t, j] + m) * rows[j, c], (j, 1, J)) - m * Sum(rows[j, c], (j, 1, J)),
            W[t, c],
            given=(-based,),
        ),
        step("They are positive for m > -c_t.", sign, ct + m, ((ct + m,),), positive=(ct + m,), strict=True),
        step(
            "A certificate against r: y >= 0, y'W = 0, forces sum_t y_t (W x)_t = 0 for every x ...",
            index_sums,
            Sum(y[t] * W[t, c] * weights[c], (t, 1, T), (c, 1, C)),
            0,
            given=(Sum(Sum(y[t] * W[t, c], (t, 1, T)) * weights[c], (c, 1, C)),),
        ),
        step(
            "... but were W x positive on the non-zero taps, and y > 0 at one of them, this sum would be positive.",
            sign,
            left * bt + other,
            ((left, bt), (other,)),
            given=(other,),
            positive=(left, bt),
            strict=True,
        ),
        step(
            "[-1, 0, 1] has rank 1, and y = (1, 0, 1) is such a certificate: y'W = 0.",
            identity,
            sum(a * b for a, b in zip((1, 0, 1), EDGE, strict=True)),
            0,
        ),
        step("Two heads do: [-1, 0, 1] is in the span of the rows (1, 1, 2)/4 and (2, 1, 1)/4 ...", spans, TWO, [EDGE]),
        step("... which are positive and sum to 1.", finite, TWO, lambda row: sum(row) == 1 and min(row) > 0, count=2),
        step("[1, 2, 1] needs one head: it is 4 times the attention row (1, 2, 1)/4.", spans, [[1, 2, 1]], [[4, 8, 4]]),
        refutation("One positive row, (1, 1, 2)/4, does not span [-1, 0, 1].", spans, TWO[:1], [EDGE]),
    ),
    mutants=(
        step(
            "The space of [-1, 0, 1] holds a pattern positive at both non-zero taps: x > 0 at tap 1 makes -x > 0 at "
            "tap -1.",
            sign,
            -m,
            positive=(m,),
            strict=True,
            witness={m: 1},
        ),
        step("The certificate y = (1, 0, 2) for [-1, 0, 1].", identity, 1 * -1 + 0 * 0 + 2 * 1, 0),
        step(
            "r + 1 patterns with the wrong correction, + 1 (m sum_j R_j).",
            index_sums,
            Sum((cols[t, j] + m) * rows[j, c], (j, 1, J)) + m * Sum(rows[j, c], (j, 1, J)),
            Sum(cols[t, j] * rows[j, c], (j, 1, J)),
            instance={J: 1, t: 1, c: 1},
        ),
        step("One head makes every pattern of rank 1: (-1, 0, 1) from (1, 0, 1)/2.", spans, [[1, 0, 1]], [EDGE]),
        step(
            "A lift below -c_t/u_t is non-negative too.",
            sign,
            ct + m * bt,
            positive=(bt,),
            given=(m,),
            witness={ct: -2, m: 1, bt: 1},
        ),
    ),
)
