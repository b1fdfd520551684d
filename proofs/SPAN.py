"""The statement of a confirmed certificate of a span: weights that leave nothing that counts, or that none do."""

from fractions import Fraction

from sympy import IndexedBase, Rational, Sum, symbols

from .certificates import answers, written
from .claim import Claim, refutation, step
from .core import finite, index_sums, sign, spans

H, Q, K = symbols("H Q K", integer=True)
h, q, k = symbols("h q k", integer=True)
A, e, y, phi = map(IndexedBase, ["A", "e", "y", "phi"])
left = e[q, k] - Sum(phi[h] * A[h, q, k], (h, 1, H))

share = Sum(phi[h] * y[q, k] * A[h, q, k], (h, 1, H), (q, 1, Q), (k, 1, K))

gain, peak, reach, norm, bound, eps, rate, r = symbols("g p m n B epsilon rho r", real=True)

NINTH = [[[6, 3], [3, 6]], [[3, 6], [1, 8]]]  # L3p (a): two heads at two queries, over 9
HEADS = [[[Fraction(x, 9) for x in row] for row in rows] for rows in NINTH]
BOTH = [({0: 1}, HEADS[0]), ({1: 1}, HEADS[1])]
DUAL = [[5, -1], [-9, 0]]
CONFIRMED = [
    written(BOTH[:1], weights=[2, -1]),
    written(BOTH, dual=DUAL),
    written(BOTH, dual=DUAL, eps=Fraction(5, 15)),
    written(BOTH, dual=DUAL, bound=100, per_norm=Fraction(1, 1000), eps=Fraction(1, 5)),
]
REFUSED = [
    written(BOTH, weights=[2, -1]),
    written(BOTH, dual=[[5, -1], [9, 0]]),
    written(BOTH, dual=DUAL, eps=Fraction(5, 14)),
    written(BOTH, dual=DUAL, bound=100, per_norm=Fraction(1, 100)),
    written(BOTH, dual=DUAL, per_norm=Fraction(1, 10**9)),
    written(BOTH[:1], weights=[2, -1], bound=2),
]


def confirms(text):
    return answers(text) == [True]


CLAIM = Claim(
    name="SPAN",
    title="What the checker of certificates confirms is true",
    words="If the checker confirms a certificate that some weights leave nothing that counts, they leave at most eps + "
    "rate |phi|_1 of the row asked for, summed over keys, at each query listed. If it confirms a refutation, by a dual "
    "vector y of integers at some queries, no weights (of norm at most B, or any, where there is no bound) do. So "
    "one confirmed certificate for each tap gives a layer of these heads for every convolution, within max |X| sum_t "
    "(eps + rate |phi_t|_1) sum_c |w_tco| of it at the queries listed, and a confirmed refutation keeps every layer of "
    "these heads, of norm at most B, farther than eps + rate |phi|_1 from the shift, at some image of ones and minus "
    "ones (L3). From the integers of a file it reads exactly the certificates that stand there.",
    formula=r"\langle y, e\rangle - B \max_h |\langle A_h, y\rangle| > (\varepsilon + \rho B) \sum_q \max_k |y_{qk}| "
    r"\implies \nexists\, \phi,\ |\phi|_1 \le B:\ \forall q\ |e_q - \phi A_q|_1 \le \varepsilon + \rho |\phi|_1",
    conditions=(
        "the certificate holds the attention and the row asked for as exact integers over a common denominator",
        "the denominators are positive and the rate is not negative, which the checker tests",
    ),
    source="this project; the refutation is weak duality of a linear programme",
    not_shown="That the rows in a certificate are those of a model, and all that a verdict of `check_span` needs; "
    "counting (`confirms_counting`). The twin in Python is not proved; the proved program trusts Coq's extraction, "
    "Zarith and the reading of digits.",
    licenses={},
    formal="whole",
    steps=(
        step(
            "The sum of y over what weights leave is <y, e> less the heads' share ...",
            index_sums,
            Sum(y[q, k] * left, (q, 1, Q), (k, 1, K))
            + Sum(phi[h] * y[q, k] * A[h, q, k], (h, 1, H), (q, 1, Q), (k, 1, K)),
            Sum(y[q, k] * e[q, k], (q, 1, Q), (k, 1, K)),
        ),
        step(
            "... which is at most |phi|_1 m, m = max_h |<A_h, y>|, while what is left, at most r at each query, meets "
            "y in at most r p, p = sum_q max_k |y|. So g = <y, e> <= r p + |phi|_1 m; with r = eps + rate |phi|_1 and "
            "|phi|_1 <= B this is at most (eps + rate B) p + B m, and a larger g refutes.",
            sign,
            (eps + rate * bound) * peak + bound * reach - ((eps + rate * norm) * peak + norm * reach),
            ((bound - norm, rate, peak), (bound - norm, reach)),
            given=(bound - norm, rate, peak, reach),
        ),
        step(
            "Without a bound: where y meets no head and the rate is 0, g > eps p refutes, for every phi.",
            sign,
            gain - eps * peak,
            ((gain - r * peak,), (r - eps, peak)),
            given=(r - eps, peak),
            positive=(gain - r * peak,),
            strict=True,
        ),
        step(
            "The two heads of L3p (a): weights for one query and duals for both are confirmed. None serve both ...",
            finite,
            CONFIRMED,
            confirms,
            count=4,
        ),
        refutation(
            "... as elimination over the rationals says too.",
            spans,
            [[*rows[0], *rows[1]] for rows in zip(*HEADS, strict=True)],
            [[1, 0, 0, 1]],
        ),
        step(
            "Six near certificates are refused: a query too many, a wrong sign, eps = 5/14 > 5/15, a rate too large, a "
            "rate without a bound, a norm above the bound.",
            finite,
            REFUSED,
            lambda text: answers(text) == [False],
            count=6,
        ),
    ),
    mutants=(
        step("The six are confirmed.", finite, REFUSED, confirms, count=6),
        step(
            "The heads' share need not be charged to the bound.",
            sign,
            (eps + rate * bound) * peak - ((eps + rate * norm) * peak + norm * reach),
            given=(bound - norm, rate, peak, reach),
            witness={eps: 0, rate: 0, bound: 1, norm: 1, peak: 1, reach: 1},
        ),
        step(
            "The rate may be charged at the norm 0.",
            sign,
            eps * peak + bound * reach - ((eps + rate * norm) * peak + norm * reach),
            given=(bound - norm, rate, peak, reach),
            witness={eps: 0, rate: 1, bound: 1, norm: 1, peak: 1, reach: 0},
        ),
        step(
            "A dual without the largest entries: g > eps refutes.",
            sign,
            gain - eps * peak,
            given=(gain - eps,),
            positive=(peak,),
            witness={gain: 1, eps: Rational(1, 2), peak: 4},
        ),
        step(
            "What weights leave meets y as the target alone does.",
            index_sums,
            Sum(y[q, k] * left, (q, 1, Q), (k, 1, K)),
            Sum(y[q, k] * e[q, k], (q, 1, Q), (k, 1, K)),
            instance={H: 1, Q: 1, K: 1},
        ),
    ),
)
