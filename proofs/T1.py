"""Theorem 1: every convolution is a multi-head self-attention, with a bound on the difference at finite alpha."""

from math import prod

from sympy import Function, IndexedBase, KroneckerDelta, Rational, Sum, symbols

from .claim import Claim, step
from .core import identity, index_sums, sign
from .domain import FLAG, KERNEL, Array, Domain, Each, Floats, Integers, Many

H, N, C = symbols("H N C", integer=True)
h, k, c, o, q = symbols("h k c o q", integer=True)
P, X, M, b = map(IndexedBase, "PXMb")
target = Function("target")  # the key of head h at query q

n = symbols("n", positive=True, integer=True)
p, r, u, w, a, z, E, B, eps, share, cn = symbols("p r u w a z E B epsilon share c_n", real=True)

attention = Sum(P[h, q, k] * X[k, c] * M[h, c, o], (h, 1, H), (k, 1, N), (c, 1, C))
convolution = Sum(X[target(q, h), c] * M[h, c, o], (h, 1, H), (c, 1, C))
rows_sum_to_one = Sum(P[h, q, k], (k, 1, N)) - 1

CLAIM = Claim(
    name="T1",
    title="Theorem 1 with its bound",
    words="A layer of quadratic heads at the offsets of a kernel, with W_val W_out of each head the tap's matrix, "
    "differs from the convolution by at most the leaked mass times the sum over taps and channels of |w| times the "
    "range of that channel of the padded input, zeros of the padding included; the bound tends to 0 as alpha grows, "
    "for all sizes at once. The same holds for any tokens on the keys, with their range: images padded in any mode, "
    "cropped, or stuffed with zeros for a transposed convolution; for unpadded heads, with the convolution of the "
    "replicate-padded image; and for heads of two encoding dimensions (D2), with the leak of one axis. Hence every "
    "convolution is the limit of such layers, uniformly over inputs that are bounded by one number, and equals one "
    "where the softmax is exactly one-hot.",
    formula=r"|\mathrm{MHSA}(X)_{qo} - \mathrm{Conv}(X)_{qo}| \le \left(1 - c^{-n}\right)\sum_{h, c}"
    r" \left(\max_k X_{kc} - \min_k X_{kc}\right) |W_{hco}|,\quad c = 1 + \frac{2}{e^\alpha - 1}",
    conditions=(
        "those of L1 and L2c: heads in bijection with taps, integer offsets, padded grid, alpha > 0",
        "the range counts every key of the padded grid, so it includes the zeros of zero padding",
        "finite inputs: a NaN or an infinity spreads through dense attention and not through a convolution",
    ),
    source="Cordonnier et al. 2020, Theorem 1; the bound is this project's",
    not_shown="Floating point: rounding is bounded apart. The triangle inequality for sums is used as such.",
    licenses={
        "conv2attn.layers.theorem.construction.attention_for": Domain(
            {
                "kernel": KERNEL,
                "stride": Many(Integers(1, 3), 1, 3),
                "dilation": Many(Integers(1, 3), 1, 3),
                "before": Many(Integers(0, 4), 1, 3),
                "after": Many(Integers(0, 4), 1, 3),
                "mode": Each(("zeros", "reflect", "replicate", "circular")),
                "groups": Integers(1, 3),
                "d_in a group": Integers(1, 3),
                "d_out a group": Integers(1, 3),
                "weights": Array(Integers(1, 2**16)),
                "bias": FLAG,
            },
            ("at most 60 taps", lambda kernel, *others: prod(kernel) <= 60),
            beside={
                "encoding": Each(("quadratic", "enumerated")),
                "stride_by": Each(("queries", "pooling")),
                "trainable": FLAG,
                "width": Each(("as needed", "the least", "more")),
                "keys to spare": Many(Integers(0, 2), 1, 3),
                "images": Integers(1, 3),
                "pixels": Array(Integers(1, 2**16)),
            },
        ),
        "conv2attn.theory.bounds.mixing_effect": Domain(
            {"leak": Floats(2.0**-60, 1.0, zero=True), "input_range": Floats(2.0**-60, 2.0**60, zero=True)},
            ("a rounding of the mixing is not licensed", lambda leak, input_range: True),
        ),
    },
    formal="whole",
    steps=(
        step(
            "The difference is the sum of P[k] (X[k] - X[target]) M, since every row of P sums to 1; biases cancel.",
            index_sums,
            (attention + b[o]) - (convolution + b[o]),
            Sum(P[h, q, k] * (X[k, c] - X[target(q, h), c]) * M[h, c, o], (h, 1, H), (k, 1, N), (c, 1, C)),
            given=(Sum(rows_sum_to_one * X[target(q, h), c] * M[h, c, o], (h, 1, H), (c, 1, C)),),
        ),
        step(
            "Its summand at the target itself is 0, so only the off-target mass counts.",
            index_sums,
            Sum(KroneckerDelta(k, target(q, h)) * P[h, q, k] * (X[k, c] - X[target(q, h), c]), (k, 1, N)),
            0,
            sizes={target: N},
        ),
        step(
            "The off-target mass is 1 - P[target].",
            index_sums,
            Sum(P[h, q, k] * (1 - KroneckerDelta(k, target(q, h))), (k, 1, N)),
            1 - P[h, q, target(q, h)],
            sizes={target: N},
            given=(rows_sum_to_one,),
        ),
        step(
            "p w u <= p r |w| for p >= 0, |u| <= r, |w| = a (and the same with -u).",
            sign,
            p * r * a - p * w * u,
            ((Rational(1, 2), p, a - w, r + u), (Rational(1, 2), p, a + w, r - u)),
            given=(p, a - w, a + w, r - u, r + u),
        ),
        step(
            "The mass 1 - share is at most 1 - 1/c^n when share >= 1/c^n (L2c).",
            sign,
            (1 - 1 / cn) - (1 - share),
            ((share - 1 / cn,),),
            given=(share - 1 / cn,),
        ),
        step(
            "The limit: with the mass at most 2 n/(E - 1) (L2b) and B >= 0 the sum of ranges, E >= 1 + 2 n B/eps "
            "leaves eps.",
            sign,
            eps - 2 * n / (E - 1) * B,
            ((eps, E - 1 - 2 * n * B / eps, 1 / (E - 1)),),
            given=(E - 1 - 2 * n * B / eps,),
            positive=(E - 1, eps),
        ),
        step(
            "A one-hot softmax leaves nothing: attention equals convolution.",
            index_sums,
            attention.xreplace({P[h, q, k]: KroneckerDelta(k, target(q, h))}),
            convolution,
            sizes={target: N},
        ),
        step(
            "The mass enters once: share p, rest 1 - p, values z and z + r, the bound is attained.",
            identity,
            p * z + (1 - p) * (z + r) - z,
            (1 - p) * r,
        ),
    ),
    mutants=(
        step(
            "The range taken over the image without the zeros of its padding: a constant image has range 0, but leaks.",
            sign,
            0 - (1 - share) * z,
            given=(share, 1 - share, z),
            witness={share: Rational(9, 10), z: 1},
        ),
        step(
            "Half the range: |difference| <= (1 - share) r/2.",
            sign,
            (1 - share) * r / 2 - (1 - share) * r,
            given=(share, 1 - share, r),
            witness={share: Rational(1, 2), r: 1},
        ),
        step(
            "The difference formula for rows that do not sum to 1.",
            index_sums,
            attention - convolution,
            Sum(P[h, q, k] * (X[k, c] - X[target(q, h), c]) * M[h, c, o], (h, 1, H), (k, 1, N), (c, 1, C)),
            instance={H: 1, N: 2, C: 1, q: 1, o: 1, target: lambda q, h: q},
        ),
        step(
            "The mass counted twice less: |difference| <= (1 - share)^2 r.",
            sign,
            (1 - share) ** 2 * r - (1 - share) * r,
            given=(share, 1 - share, r),
            witness={share: Rational(1, 2), r: 1},
        ),
        step(
            "A bound without |w|: p w u <= p r w for w < 0.",
            sign,
            p * r * w - p * w * u,
            given=(p, r - u, r + u),
            witness={p: 1, r: 1, w: -1, u: 0},
        ),
    ),
)
