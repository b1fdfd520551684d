"""Self-attention without positions: shuffled tokens give shuffled outputs, not the same ones."""

from sympy import Function, IndexedBase, KroneckerDelta, Sum, symbols

from .claim import Claim, refutation, step
from .core import identity, index_sums

H, N, C = symbols("H N C", integer=True)
h, q, k, j, c, o = symbols("h q k j c o", integer=True)
w, X, M, P, beta, bias = map(IndexedBase, ["w", "X", "M", "P", "beta", "b"])
shuffle = Function("pi")  # token q of the shuffled input is token pi(q)
each_token_once = Sum(KroneckerDelta(shuffle(k), j), (k, 1, N)) - 1
above, below, shuffled_above, shuffled_below = symbols("n d n' d'", positive=True)

weighted = w[h, shuffle(q), j] * X[j, c]  # w[h, i, j]: e to the score of token i for token j, in head h
mixed = Sum(weighted, (j, 1, N))
swap = {H: 1, N: 2, C: 1, h: 1, q: 1, c: 1, o: 1, shuffle: lambda q: 3 - q}


def layer(query):
    """The output at `query`, a token, from attention P between tokens."""
    return Sum(P[h, query, j] * X[j, c] * M[h, c, o], (h, 1, H), (j, 1, N), (c, 1, C)) + bias[o]


shuffled_layer = (
    Sum(P[h, shuffle(q), shuffle(k)] * X[shuffle(k), c] * M[h, c, o], (h, 1, H), (k, 1, N), (c, 1, C)) + bias[o]
)

CLAIM = Claim(
    name="EQV",
    title="Without positions, equivariant",
    words="If scores depend on the two tokens alone, shuffling the tokens shuffles the outputs of self-attention "
    "alike: it is equivariant. It is not invariant: the outputs at given places change.",
    formula=r"\mathrm{MHSA}(X_\pi)_q = \mathrm{MHSA}(X)_{\pi(q)}",
    conditions=("Eqs. (1)-(2): no positional encoding", "pi is a bijection of the tokens"),
    source="Cordonnier et al. 2020, Section 2.1, Eqs. (1)-(3), its definition of equivariance corrected",
    not_shown="Translations of a relative encoding, under which a layer with positions is equivariant.",
    licenses={},
    formal="whole",
    errata=("E16",),
    steps=(
        step(
            "A sum over the shuffled tokens is the sum over the tokens: the weighted values ...",
            index_sums,
            Sum(w[h, shuffle(q), shuffle(k)] * X[shuffle(k), c], (k, 1, N)),
            mixed,
            sizes={shuffle: N},
            given=(Sum(weighted * each_token_once, (j, 1, N)),),
        ),
        step(
            "... and the weights, which the softmax divides by.",
            index_sums,
            Sum(w[h, shuffle(q), shuffle(k)], (k, 1, N)),
            Sum(w[h, shuffle(q), j], (j, 1, N)),
            sizes={shuffle: N},
            given=(Sum(w[h, shuffle(q), j] * each_token_once, (j, 1, N)),),
        ),
        step(
            "So their quotient, a head's output at q, is that of the token pi(q).",
            identity,
            shuffled_above / shuffled_below,
            above / below,
            given=(
                (1 / shuffled_below, shuffled_above - above),
                (-above / (below * shuffled_below), shuffled_below - below),
            ),
        ),
        step(
            "All heads, output weights and bias: equivariant.",
            index_sums,
            shuffled_layer,
            layer(shuffle(q)),
            sizes={shuffle: N},
            given=(Sum(P[h, shuffle(q), j] * X[j, c] * M[h, c, o] * each_token_once, (h, 1, H), (j, 1, N), (c, 1, C)),),
        ),
        refutation(
            "Not invariant: with two tokens exchanged, the output at place 1 is another.",
            index_sums,
            shuffled_layer,
            layer(q),
            instance=swap,
        ),
    ),
    mutants=(
        step("The output at place q stays as it was.", index_sums, layer(shuffle(q)), layer(q), instance=swap),
        step(
            "Equivariant although the scores depend on the places too.",
            index_sums,
            Sum(P[h, q, k] * X[shuffle(k), c] * M[h, c, o], (h, 1, H), (k, 1, N), (c, 1, C)),
            Sum(P[h, shuffle(q), j] * X[j, c] * M[h, c, o], (h, 1, H), (j, 1, N), (c, 1, C)),
            instance=swap,
        ),
        step(
            "Equivariant under a map that takes two places to one token.",
            index_sums,
            shuffled_layer,
            layer(shuffle(q)),
            instance=swap | {shuffle: lambda q: q * 0 + 1},
        ),
        step(
            "Equivariant with a bias for each place.",
            index_sums,
            shuffled_layer - bias[o] + beta[q, o],
            layer(shuffle(q)) - bias[o] + beta[shuffle(q), o],
            instance=swap,
        ),
        step(
            "The values shuffled and the weights not: the quotient stays.",
            identity,
            shuffled_above / below,
            above / below,
        ),
    ),
)
