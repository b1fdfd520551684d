"""Lemma 3 as it should read: one mixing matrix for all queries is necessary and sufficient."""

from sympy import Function, IndexedBase, KroneckerDelta, Sum, symbols

from .claim import Claim, step
from .core import index_sums
from .domain import HEADS_ON_A_LINE

H, T, N, C, Q = symbols("H T N C Q", integer=True)
h, t, k, c, o, q = symbols("h t k c o q", integer=True)
t0, k0, c0, o0, g = symbols("t_0 k_0 c_0 o_0 g", integer=True)
P, Es, M, W, X, Phi, probe, y = map(IndexedBase, ["P", "E", "M", "W", "X", "Phi", "M_probe", "y"])
serves = Function("serves")  # the head that is one-hot at a tap's offset

mixed = Sum(Phi[t, h] * P[h, q, k], (h, 1, H))
convolution = Sum(Es[t, q, k] * X[k, c] * W[t, c, o], (t, 1, T), (k, 1, N), (c, 1, C))
chosen = Sum(P[h, q, k] * X[k, c] * Sum(Phi[t, h] * W[t, c, o], (t, 1, T)), (h, 1, H), (k, 1, N), (c, 1, C))
one_pixel = KroneckerDelta(k, k0) * KroneckerDelta(c, c0)

CLAIM = Claim(
    name="L3",
    title="Lemma 3, joint form",
    words="Heads with attention P^h that does not depend on X express every convolution over the taps t (E^t the shift "
    "of tap t, as a map from keys to queries) if and only if there is one matrix Phi with E^t = sum_h Phi[t, h] P^h at "
    "all queries at once: the rows of [E_q1 E_q2 ...] lie in the rows of [A_q1 A_q2 ...]. A Phi for all q is one for "
    "each q, so the printed condition is necessary; it is not sufficient (L3p). If a dual vector meets no head, but "
    "the shift of a tap in more than eps times the sum of its peaks, every layer of these heads, of any width, differs "
    "by more than eps from the convolution that is this shift, at some image of ones and minus ones. Conversely, if "
    "Phi leaves at most eps_t of the shift of tap t at every query, summed over the keys, the layer with the weights "
    "that Phi mixes differs from each convolution by at most max |X| sum_t eps_t sum_c |w_tco|.",
    formula=r"\forall W\,\exists M\,\forall X:\ \sum_h P^h X M_h = \sum_t E^t X W_t"
    r"\quad\Longleftrightarrow\quad \exists\Phi\,\forall q:\ E_q = \Phi A_q",
    conditions=(
        "the attention does not depend on X (E12)",
        "D_in >= 1 and D_out >= 1; head width at least min(D_in, D_out), which serves every Phi (T1p)",
        "an offset that leaves the grid asks for zero; with zero padding made explicit none does",
    ),
    source="Cordonnier et al. 2020, Lemma 3, Eqs. (15)-(17), corrected by this project",
    not_shown="Whether given floats satisfy the condition; that is decided for each attention by check_span.",
    licenses={
        "conv2attn.span.check_span": HEADS_ON_A_LINE,
    },
    formal="whole",
    errata=("E2", "E12"),
    steps=(
        step(
            "Sufficient: if E^t = sum_h Phi[t, h] P^h, then M_h = sum_t Phi[t, h] W_t gives the convolution, for every "
            "X.",
            index_sums,
            convolution,
            chosen,
            given=(Sum((Es[t, q, k] - mixed) * X[k, c] * W[t, c, o], (t, 1, T), (k, 1, N), (c, 1, C)),),
        ),
        step(
            "Necessary: the convolution with the single tap t0, channel c0 to o0, on the image of one pixel k0 is "
            "E[t0, q, k0] ...",
            index_sums,
            Sum(
                Es[t, q, k] * one_pixel * KroneckerDelta(t, t0) * KroneckerDelta(c, c0), (t, 1, T), (k, 1, N), (c, 1, C)
            ),
            Es[t0, q, k0],
            sizes={t0: T, k0: N, c0: C},
        ),
        step(
            "... and the heads with the matrices M that express it give there sum_h M[h, c0, o0] P[h, q, k0]: so "
            "Phi[t0, h] = M[h, c0, o0] serves all q and k0 at once.",
            index_sums,
            Sum(P[h, q, k] * one_pixel * probe[t0, h, c, o0], (h, 1, H), (k, 1, N), (c, 1, C)),
            Sum(probe[t0, h, c0, o0] * P[h, q, k0], (h, 1, H)),
            sizes={k0: N, c0: C},
        ),
        step(
            "Hard heads on explicit padding satisfy it: Phi[t, h] = [h = serves(t)].",
            index_sums,
            Sum(KroneckerDelta(h, serves(t)) * P[h, q, k], (h, 1, H)),
            P[serves(t), q, k],
            sizes={serves: H},
        ),
        step(
            "A dual vector y that meets no head meets what any weights leave as it meets the shift; so somewhere these "
            "leave more than eps, and an image with the signs of what they leave, or the opposite ones, shows it.",
            index_sums,
            Sum(y[q, k] * Es[t0, q, k], (q, 1, Q), (k, 1, N)),
            Sum(y[q, k] * (Es[t0, q, k] - Sum(Phi[t0, h] * P[h, q, k], (h, 1, H))), (q, 1, Q), (k, 1, N)),
            given=(Sum(Phi[t0, h] * Sum(y[q, k] * P[h, q, k], (q, 1, Q), (k, 1, N)), (h, 1, H)),),
        ),
    ),
    mutants=(
        step(
            "Any vector meets what weights leave as it meets the shift.",
            index_sums,
            Sum(y[q, k] * (Es[t0, q, k] - Sum(Phi[t0, h] * P[h, q, k], (h, 1, H))), (q, 1, Q), (k, 1, N)),
            Sum(y[q, k] * Es[t0, q, k], (q, 1, Q), (k, 1, N)),
            instance={H: 1, Q: 1, N: 1, t0: 1},
        ),
        step(
            "The same with a Phi for each query (the lemma as printed): the weights made at query g fail at query q.",
            index_sums,
            Sum(Sum(Phi[q, t, h] * P[h, q, k], (h, 1, H)) * X[k] * W[t], (t, 1, T), (k, 1, N)),
            Sum(P[h, q, k] * X[k] * Sum(Phi[g, t, h] * W[t], (t, 1, T)), (h, 1, H), (k, 1, N)),
            instance={H: 1, T: 1, N: 1, q: 1, g: 2},
        ),
        step(
            "Phi transposed.",
            index_sums,
            Sum(Sum(Phi[t, h] * P[h, q, k], (h, 1, H)) * X[k] * W[t], (t, 1, T), (k, 1, N)),
            Sum(P[h, q, k] * X[k] * Sum(Phi[h, t] * W[t], (t, 1, T)), (h, 1, H), (k, 1, N)),
            instance={H: 2, T: 2, N: 1, q: 1},
        ),
        step(
            "Heads that miss one query: E = Phi P at query g alone.",
            index_sums,
            Sum((Es[t, q, k] - Es[t, g, k]) * X[k], (t, 1, T), (k, 1, N)),
            0,
            instance={T: 1, N: 1, q: 1, g: 2},
        ),
        step(
            "Phi of the first tap for all taps.",
            index_sums,
            Sum(Phi[1, h] * P[h, q, k] * X[k] * W[t], (t, 1, T), (h, 1, H), (k, 1, N)),
            Sum(Phi[t, h] * P[h, q, k] * X[k] * W[t], (t, 1, T), (h, 1, H), (k, 1, N)),
            instance={T: 2, H: 1, N: 1, q: 1},
        ),
        step(
            "The weights summed before they are multiplied.",
            index_sums,
            Sum(P[h, q, k], (h, 1, H)) * Sum(M[h], (h, 1, H)),
            Sum(P[h, q, k] * M[h], (h, 1, H)),
            instance={H: 2, q: 1, k: 1},
        ),
    ),
)
