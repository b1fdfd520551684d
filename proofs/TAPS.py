"""How many heads a layer needs that expresses every convolution of a kernel: as many as taps."""

from sympy import IndexedBase, KroneckerDelta, Sum, symbols

from .claim import Claim, refutation, step
from .core import index_sums, spans

H, T, Q, K = symbols("H T Q K", integer=True)
h, t, q, k, u = symbols("h t q k u", integer=True)
E, P, Phi, a, dual = map(IndexedBase, ["E", "P", "Phi", "a", "G"])

joint = E[t, q, k] - Sum(Phi[t, h] * P[h, q, k], (h, 1, H))  # 0 by L3
lost = Sum(a[t] * Phi[t, h], (t, 1, T))  # 0 for a combination a of taps that Phi maps to zero
unmatched = Sum(dual[u, q, k] * E[t, q, k], (q, 1, Q), (k, 1, K)) - KroneckerDelta(u, t)  # 0: shifts have a dual
HEADS = [[1, 2, 1], [1, 0, -1]]  # two maps of three taps
SHIFTS = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
FOUR = [[int(a == b) for b in range(4)] for a in range(4)]

CLAIM = Claim(
    name="TAPS",
    title="As many heads as taps are necessary",
    words="A layer whose attention does not depend on X and that expresses every convolution of a kernel, by choice "
    "of its value and output weights, has at least as many heads as the kernel has taps, whatever its maps and its "
    "widths. So K^2 heads, which Theorem 1 shows to suffice for a K x K kernel, are also necessary. Fewer do not even "
    "come near: if some output sees all taps, there is a tap whose shift every such layer misses by more than any eps "
    "< 1, at some image of ones and minus ones, where the layer 0 is off by 1.",
    formula=r"\bigl(\forall W\,\exists M\,\forall X:\ \sum_h P^h X M_h = \sum_t E^t X W_t\bigr) "
    r"\implies N_h \ge \#\{t\} = K^2",
    conditions=(
        "every tap sees a pixel at some output, so that the shifts E^t are linearly independent",
        "the attention does not depend on X (E12); weights in a field; D_in >= 1 and D_out >= 1",
    ),
    source="this project; Cordonnier et al. 2020 show that K^2 heads suffice",
    not_shown="How many heads one given convolution needs: HEADS.",
    licenses={},
    formal="whole",
    steps=(
        step(
            "By L3, E = Phi P. If a' Phi = 0, the combination a of the shifts is 0 at every query and key ...",
            index_sums,
            Sum(a[t] * E[t, q, k], (t, 1, T)),
            0,
            given=(Sum(a[t] * joint, (t, 1, T)), Sum(lost * P[h, q, k], (h, 1, H))),
        ),
        step(
            "... and shifts that each see a pixel have dual maps G, so a = 0: the rows of Phi are independent, no more "
            "than its columns.",
            index_sums,
            a[u],
            0,
            sizes={u: T},
            given=(
                -Sum(a[t] * unmatched, (t, 1, T)),
                Sum(dual[u, q, k] * Sum(a[t] * E[t, q, k], (t, 1, T)), (q, 1, Q), (k, 1, K)),
            ),
        ),
        step(
            "The dual of tap u is the entry that u alone sees: G[u, q, k] = [q = q_u] [k = k_u], as two taps of one "
            "output see two pixels.",
            spans,
            SHIFTS,
            SHIFTS,
        ),
        refutation("Two heads, of whatever maps, do not span the three shifts of a line.", spans, HEADS, SHIFTS),
        step("Three do, here with the map that the two lacked.", spans, [*HEADS, [0, 0, 1]], SHIFTS),
    ),
    mutants=(
        step("Two heads give three taps.", spans, HEADS, SHIFTS),
        step("Three heads in one plane give three taps.", spans, [*HEADS, [2, 2, 0]], SHIFTS),
        step(
            "A combination of shifts is 0 for every a, whether or not a' Phi = 0.",
            index_sums,
            Sum(a[t] * Phi[t, h] * P[h, q, k], (t, 1, T), (h, 1, H)),
            0,
            instance={T: 1, H: 1, q: 1, k: 1},
        ),
        step("Three heads give four taps.", spans, FOUR[:3], FOUR),
        step(
            "A tap that sees no pixel has a dual map: 0 = 1.",
            index_sums,
            Sum(dual[u, q, k] * E[t, q, k] * 0, (q, 1, Q), (k, 1, K)),
            KroneckerDelta(u, t),
            instance={Q: 1, K: 1, u: 1, t: 1},
        ),
    ),
)
