"""Andreoli's framework: decomposition, the generic convolution, composition, and the Transformer as an instance."""

from sympy import Function, IndexedBase, KroneckerDelta, Rational, Sum, exp, symbols

from .claim import Claim, refutation, step
from .core import identity, index_sums, less, spans
from .domain import FLAG, Array, Domain, Integers, Many

K, L, S, Mx, N, C, D = symbols("K L S M N C D", integer=True)
k, g, s, t, j, z = symbols("k g s t j z", integer=True)
m, n, r, c, d, o = symbols("m n r c d o", integer=True)
reads = Function("reads")  # the entry that output n reads by shift k, in the grid
first_weight, second_weight, factor = symbols("e_1 e_2 f", positive=True)
a, dual, Phi, Theta, A, B, X, U, V, W, b, theta = map(
    IndexedBase, ["a", "b", "Phi", "Theta", "A", "B", "x", "U", "V", "W", "beta", "theta"]
)

left_inverse = Sum(dual[k, s] * a[j, s], (s, 1, S)) - KroneckerDelta(k, j)
right_inverse = Sum(a[k, s] * dual[k, z], (k, 1, K)) - KroneckerDelta(s, z)
first = Sum(A[k, m, n] * X[m, c] * U[k, c, d], (k, 1, K), (m, 1, Mx), (c, 1, C)) + b[d]


def composed(basis):
    """The layer of a product basis (of k and g, from m to r) with parameters Theta1_k Theta2_g, plus a bias field."""
    parameter = Sum(U[k, c, d] * V[g, d, o], (d, 1, D))
    field = Sum(B[g, n, r] * b[d] * V[g, d, o], (g, 1, L), (n, 1, N), (d, 1, D))
    return Sum(basis * X[m, c] * parameter, (k, 1, K), (g, 1, L), (m, 1, Mx), (c, 1, C)) + field


CLAIM = Claim(
    name="AND",
    title="Andreoli: Propositions 1-3, Eqs. (9)-(13)",
    words="(1) Over a basis every tensor has a unique decomposition. (2) A convolution of basis A and parameter Theta "
    "is y = sum_k A_k' x Theta_k; the grid convolution and position-only attention are instances. (3) Composing two of "
    "them multiplies their bases and their parameters; the first layer's bias becomes a field over the queries. (13) "
    "Concatenating heads and multiplying by an output matrix is the sum over heads with Theta_k = value_k output_k. "
    "(9) If Theta_k = sum_h theta_hk C_h, basis elements may be added up first, H terms for K. (12) A bi-linear term "
    "key query' is the inner product of keys and queries. (11) A softmax over the inputs cancels lambda' and xi; with "
    "a leaky ReLU before it, it does not. Masked inputs weigh 0, after a leaky ReLU too, but not after a plain one. A "
    "depthwise layer and a pointwise one behind it that uses every channel are (9) with as many C_h as the rank of the "
    "kernels, and in general not with one.",
    formula=r"\sum_l A_l''^\top\Bigl(\sum_k A_k'^\top x\,\Theta_k'\Bigr)\Theta_l'' = "
    r"\sum_{k,l}(A_k' A_l'')^\top x\,(\Theta_k'\Theta_l'')",
    conditions=(
        "(1) a_k, k = 1..K, is a basis: it has a dual b with sum_s b_ks a_js = [k = j] and sum_k a_ks b_kz = [s = z]",
        "(3) the inner sizes match; for attention, bases that do not depend on x (else the second basis depends on the "
        "first layer's output)",
    ),
    source="Andreoli 2019, Propositions 1, 2, 3, Eqs. (6)-(13), Definitions 4-6, Section 3.2",
    not_shown="That products of two bases which are equal as maps may be merged: that depends on the maps, and with "
    "zero padding most differ at the border.",
    licenses={
        "conv2attn.theory.basis.compose": Domain(
            {
                "tokens": Many(Integers(1, 6), 3, 3, "grids"),
                "channels": Many(Integers(1, 4), 3, 3, "images"),
                "terms": Many(Integers(1, 4), 2, 2, "layers of dense operators"),
                "biases": Many(FLAG, 2, 2, "layers of dense operators"),
                "weights": Array(Integers(1, 2**8)),
            },
            beside={"pixels": Array(Integers(1, 2**8))},
        ),
    },
    formal="part: depthwise separable layers",
    errata=("E24",),
    steps=(
        step(
            "Proposition 1, existence: Theta_k = sum_z b_kz Phi_z gives sum_k a_ks Theta_k = Phi_s.",
            index_sums,
            Sum(a[k, s] * dual[k, z] * Phi[z, t], (k, 1, K), (z, 1, S)),
            Phi[s, t],
            sizes={s: S},
            given=(Sum(right_inverse * Phi[z, t], (z, 1, S)),),
        ),
        step(
            "Proposition 1, uniqueness: whatever decomposes Phi is sum_s b_ks Phi_s.",
            index_sums,
            Theta[k, t],
            Sum(dual[k, s] * Phi[s, t], (s, 1, S)),
            sizes={k: K},
            given=(
                Sum(dual[k, s] * (Sum(a[j, s] * Theta[j, t], (j, 1, K)) - Phi[s, t]), (s, 1, S)),
                -Sum(left_inverse * Theta[j, t], (j, 1, K)),
            ),
        ),
        step(
            "Proposition 2: Eq. (6) with Phi = sum_k A_k (x) Theta_k, Eq. (7), is Eq. (8).",
            index_sums,
            Sum(X[m, c] * Sum(A[k, m, n] * Theta[k, c, o], (k, 1, K)), (m, 1, Mx), (c, 1, C)),
            Sum(Sum(A[k, m, n] * X[m, c], (m, 1, Mx)) * Theta[k, c, o], (k, 1, K), (c, 1, C)),
        ),
        step(
            "A shift basis, A_k[m, n] = [m = n + Delta_k] within the padded grid, is a grid convolution: it reads one "
            "entry.",
            index_sums,
            Sum(KroneckerDelta(m, reads(n, k)) * X[m, c] * Theta[k, c, o], (k, 1, K), (m, 1, Mx), (c, 1, C)),
            Sum(X[reads(n, k), c] * Theta[k, c, o], (k, 1, K), (c, 1, C)),
            sizes={reads: Mx},
        ),
        step(
            "Proposition 3, with the first layer's bias as a field: the composition has the product bases and "
            "parameters.",
            index_sums,
            Sum(B[g, n, r] * first * V[g, d, o], (g, 1, L), (n, 1, N), (d, 1, D)),
            composed(Sum(A[k, m, n] * B[g, n, r], (n, 1, N))),
        ),
        step(
            "Eq. (13): concatenated heads (channel (k, d)) times an output matrix with blocks W_k are a sum over "
            "heads.",
            index_sums,
            Sum(
                Sum(KroneckerDelta(j, k) * A[j, m, n] * X[m, c] * V[j, c, d], (j, 1, K)) * W[k, d, o],
                (k, 1, K),
                (d, 1, D),
                (m, 1, Mx),
                (c, 1, C),
            ),
            Sum(A[k, m, n] * X[m, c] * Sum(V[k, c, d] * W[k, d, o], (d, 1, D)), (k, 1, K), (m, 1, Mx), (c, 1, C)),
        ),
        step(
            "Eq. (9): with Theta_k = sum_h theta_hk C_h the layer is that of the bases sum_k theta_hk A_k.",
            index_sums,
            Sum(A[k, m, n] * X[m, c] * Sum(theta[g, k] * V[g, c, o], (g, 1, L)), (k, 1, K), (m, 1, Mx), (c, 1, C)),
            Sum(Sum(theta[g, k] * A[k, m, n], (k, 1, K)) * X[m, c] * V[g, c, o], (g, 1, L), (m, 1, Mx), (c, 1, C)),
        ),
        refutation(
            "Kernels (1, 0) and (0, 1) of two channels, a pointwise identity behind them: Theta_1 = diag(1, 0) and "
            "Theta_2 = diag(0, 1), flattened, are not multiples of one C, so H = 1 does not do ...",
            spans,
            [[1, 0, 0, 0]],
            [[0, 0, 0, 1]],
        ),
        step(
            "... and H = 2, the rank of the kernels, does.",
            spans,
            [[1, 0, 0, 0], [0, 0, 0, 1]],
            [[1, 0, 0, 0], [0, 0, 0, 1]],
        ),
        step(
            "In general, kernels D = U V of rank H, pointwise weights W: Theta_k = sum_h V_hk C_h with C_h[c, o] = "
            "U_ch W_co.",
            index_sums,
            Sum(U[c, g] * V[g, k], (g, 1, L)) * W[c, o],
            Sum(V[g, k] * (U[c, g] * W[c, o]), (g, 1, L)),
        ),
        step(
            "With one kernel for all channels up to a factor, (1, 2) and (3, 6), H = 1 does.",
            spans,
            [[1, 0, 0, 3]],
            [[1, 0, 0, 3], [2, 0, 0, 6]],
        ),
        step(
            "Eq. (12): x key query' z' is the inner product of x key and z query.",
            index_sums,
            Sum(X[m, c] * Sum(U[c, d] * W[o, d], (d, 1, D)) * B[n, o], (c, 1, C), (o, 1, C)),
            Sum(Sum(X[m, c] * U[c, d], (c, 1, C)) * Sum(B[n, o] * W[o, d], (o, 1, C)), (d, 1, D)),
        ),
        step(
            "Eq. (11): a factor exp(lambda' z + xi) of all weights cancels in the softmax.",
            identity,
            first_weight * factor / (first_weight * factor + second_weight * factor),
            first_weight / (first_weight + second_weight),
        ),
        step(
            "With a leaky ReLU of slope 1/2 the scores 1 and -1 differ by 3/2, and with 2 added by 2: e^(3/2) < e^2.",
            less,
            exp(Rational(3, 2)),
            exp(2),
        ),
        step(
            "A masked input weighs 0, whatever the others weigh; a leaky ReLU leaves minus infinity as it is.",
            identity,
            0 / (0 + first_weight + second_weight),
            0,
        ),
    ),
    mutants=(
        step(
            "Proposition 3 with the bases multiplied in the other order.",
            index_sums,
            Sum(B[g, n, r] * first * V[g, d, o], (g, 1, L), (n, 1, N), (d, 1, D)),
            composed(Sum(B[g, m, n] * A[k, n, r], (n, 1, N))),
            instance={K: 1, L: 1, Mx: 1, N: 2, D: 1, C: 1, r: 1, o: 1},
        ),
        step(
            "Proposition 3 with the first layer's bias forgotten.",
            index_sums,
            Sum(B[g, n, r] * first * V[g, d, o], (g, 1, L), (n, 1, N), (d, 1, D)),
            composed(Sum(A[k, m, n] * B[g, n, r], (n, 1, N))).xreplace({b[d]: 0}),
            instance={K: 1, L: 1, Mx: 1, N: 1, D: 1, C: 1, r: 1, o: 1},
        ),
        step(
            "Eq. (13) with the heads summed before the output matrix.",
            index_sums,
            Sum(A[j, m, n] * X[m, c] * V[j, c, d] * W[k, d, o], (j, 1, K), (k, 1, K), (d, 1, D), (m, 1, Mx), (c, 1, C)),
            Sum(A[k, m, n] * X[m, c] * V[k, c, d] * W[k, d, o], (d, 1, D), (k, 1, K), (m, 1, Mx), (c, 1, C)),
            instance={K: 2, D: 1, Mx: 1, C: 1, n: 1, o: 1},
        ),
        step(
            "Proposition 1 without a basis: a family of one in a space of two decomposes everything.",
            spans,
            [[1, 0]],
            [[0, 1]],
        ),
        step(
            "Proposition 2 with one parameter for all terms.",
            index_sums,
            Sum(A[k, m, n] * X[m, c] * Theta[k, c, o], (k, 1, K), (m, 1, Mx), (c, 1, C)),
            Sum(A[k, m, n] * X[m, c] * Theta[1, c, o], (k, 1, K), (m, 1, Mx), (c, 1, C)),
            instance={K: 2, Mx: 1, C: 1, n: 1, o: 1},
        ),
        step(
            "Eq. (9) with the basis elements added up without theta.",
            index_sums,
            Sum(A[k, m, n] * X[m, c] * Sum(theta[g, k] * V[g, c, o], (g, 1, L)), (k, 1, K), (m, 1, Mx), (c, 1, C)),
            Sum(A[k, m, n] * X[m, c] * V[g, c, o], (k, 1, K), (g, 1, L), (m, 1, Mx), (c, 1, C)),
            instance={K: 1, L: 1, Mx: 1, C: 1, n: 1, o: 1},
        ),
        step(
            "Two channels with kernels (1, 0) and (0, 1) share one C: H = 1 is any depthwise separable layer.",
            spans,
            [[1, 0, 0, 0]],
            [[1, 0, 0, 0], [0, 0, 0, 1]],
        ),
        step(
            "What is added to one score alone cancels too.",
            identity,
            first_weight * factor / (first_weight * factor + second_weight),
            first_weight / (first_weight + second_weight),
        ),
        step(
            "A plain ReLU keeps masked inputs at 0: minus infinity becomes 0, whose weight is 1.",
            identity,
            1 / (1 + first_weight + second_weight),
            0,
        ),
    ),
)
