"""Absolute positions of full row rank: stock query and key weights give every quadratic head; content in the leak."""

from sympy import IndexedBase, KroneckerDelta, Sum, symbols

from . import L2e
from .claim import Claim, refutation, step
from .core import identity, index_sums, sign, spans

N, D, J, E = symbols("N D J E", integer=True)
q, k, i, d, e = symbols("q k i d e", integer=True)
P, C, B, F, G, a = map(IndexedBase, ["P", "C", "B", "F", "G", "a"])  # positions, content, the dual of both, features
numerator, rest, moved_rest, total, moved_total, g = symbols("E O O' Z Z' g", real=True)

weights = Sum(B[k, d] * F[k, e], (k, 1, N))
of_positions = Sum(P[q, d] * B[k, d] * F[k, e], (d, 1, D), (k, 1, N))
of_content = Sum(a[q, i] * C[i, d] * B[k, d] * F[k, e], (i, 1, J), (d, 1, D), (k, 1, N))
is_dual = Sum(F[k, e] * (Sum(P[q, d] * B[k, d], (d, 1, D)) - KroneckerDelta(k, q)), (k, 1, N))
misses_content = Sum(a[q, i] * F[k, e] * Sum(C[i, d] * B[k, d], (d, 1, D)), (i, 1, J), (k, 1, N))
one_of_each = {N: 1, D: 1, J: 1, q: 1, e: 1}
read = Sum((P[q, d] + Sum(a[q, i] * C[i, d], (i, 1, J))) * weights, (d, 1, D))

CLAIM = Claim(
    name="POS",
    title="Absolute positions of full row rank",
    words="If the position vectors of N tokens are linearly independent, the query and key weights of a stock "
    "transformer, of width n + 1, give every quadratic head exactly at all tokens, with any centre and sharpness, "
    "whatever the positions are; more generally weights of any width give any scores that are inner products of that "
    "width. Content changes nothing if it lies in a space that is independent of the positions. Where it moves the "
    "scores by at most e, the head leaks at most exp(2 e) times as much.",
    formula=r"\forall F, G\ \exists W_q, W_k\ \forall a:\ \frac{1}{c}\bigl\langle (P_q + \textstyle\sum_i a_{qi} C_i) "
    r"W_q, (P_k + \sum_i a_{ki} C_i) W_k\bigr\rangle = \langle F_q, G_k\rangle;\qquad "
    r"1 - \operatorname{softmax}(s + \delta)_t \le e^{2\max|\delta|}(1 - \operatorname{softmax}(s)_t)",
    conditions=(
        "the positions, and with them a basis of the content, are linearly independent: at least as many channels as "
        "tokens and content dimensions together",
        "scores are divided by a constant other than 0, as by the root of the width",
    ),
    source="this project; against the paper's relative encoding, which ordinary transformers have not",
    not_shown="Layer norm and biases before the weights; how large the weights are, which the least singular value of "
    "the positions decides; what trained tables of positions are like.",
    licenses={},
    formal="whole",
    steps=(
        step(
            "Weights sum_k B_k F_k, B the dual of the positions, read F at each position ...",
            index_sums,
            of_positions,
            F[q, e],
            sizes={q: N},
            given=(is_dual,),
        ),
        step(
            "... and nothing of content, which the dual of both misses ...",
            index_sums,
            of_content,
            0,
            given=(misses_content,),
        ),
        step(
            "... so the token, position plus content, is read as the sum of the two.",
            index_sums,
            read,
            of_positions + of_content,
        ),
        step(
            "Independent positions have such a dual: (1, 1), (1, 2) span what the features of two tokens ask for.",
            spans,
            [[1, 1], [1, 2]],
            [[1, 0], [0, 1]],
        ),
        step(
            "Absolute features of n + 1 numbers give the quadratic score but for a term of the query (L2e).",
            index_sums,
            L2e.score,
            L2e.features + L2e.of_query,
        ),
        step(
            "Scores moved by at most e: the others weigh O' <= g O, and all Z <= g Z', g = exp e, so O'/Z' <= g^2 O/Z.",
            sign,
            g * rest * g * moved_total - moved_rest * total,
            ((g * rest - moved_rest, g, moved_total), (moved_rest, g * moved_total - total)),
            given=(g * rest - moved_rest, g * moved_total - total, g, moved_total, moved_rest),
        ),
        step(
            "The leak is what the others weigh: 1 - E/(E + O) = O/(E + O).",
            identity,
            1 - numerator / (numerator + rest),
            rest / (numerator + rest),
        ),
        refutation("Dependent positions have no dual: (1, 1), (2, 2).", spans, [[1, 1], [2, 2]], [[1, 0], [0, 1]]),
    ),
    mutants=(
        step("Any positions have a dual.", spans, [[1, 2], [2, 4]], [[1, 0], [0, 1]]),
        step("Any matrix serves for the dual.", index_sums, of_positions, F[q, e], sizes={q: N}, instance=one_of_each),
        step("Content in the space of the positions is not read.", index_sums, of_content, 0, instance=one_of_each),
        step("A token is read as its position alone.", index_sums, read, of_positions, instance=one_of_each),
        step(
            "Scores moved by at most e leak g times as much.",
            sign,
            g * rest * moved_total - moved_rest * total,
            given=(g * rest - moved_rest, g * moved_total - total, g, moved_total, moved_rest),
            witness={g: 2, rest: 1, moved_rest: 2, total: 2, moved_total: 1},
        ),
        step(
            "They leak no more.",
            sign,
            rest * moved_total - moved_rest * total,
            given=(g * rest - moved_rest, g * moved_total - total, g, moved_total, moved_rest),
            witness={g: 2, rest: 1, moved_rest: 2, total: 2, moved_total: 2},
        ),
    ),
)
