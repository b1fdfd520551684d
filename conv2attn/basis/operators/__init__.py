"""Families of token-mixing operators, one file a family, and the questions that each of them answers by a rule."""

from conv2attn.basis.operators import heads
from conv2attn.basis.operators.composition import Composition
from conv2attn.basis.operators.content import ContentSoftmax
from conv2attn.basis.operators.dense import Dense
from conv2attn.basis.operators.enumerated import EnumeratedSoftmax
from conv2attn.basis.operators.factored import Diagonal, LowRank
from conv2attn.basis.operators.generalised import GeneralisedSoftmax
from conv2attn.basis.operators.geometry import Padding, Sites
from conv2attn.basis.operators.kronecker import Kronecker
from conv2attn.basis.operators.learned import LearnedSoftmax
from conv2attn.basis.operators.offsets import offsets
from conv2attn.basis.operators.pattern import Pattern, inner_products, weighted_sum
from conv2attn.basis.operators.polynomials import Chebyshev, Powers
from conv2attn.basis.operators.quadratic import QuadraticSoftmax
from conv2attn.basis.operators.rules import apply, as_matrix, combine, entries, output_sides, terms
from conv2attn.basis.operators.shift import Shift, causal_shifts
from conv2attn.basis.operators.sinusoidal import SinusoidalSoftmax
from conv2attn.basis.operators.softmax import Positions, Softmax, cut_softmax
from conv2attn.basis.operators.sparse import Sparse
from conv2attn.basis.operators.sums import Combination, Concatenation

Operator = (
    Shift
    | QuadraticSoftmax
    | GeneralisedSoftmax
    | EnumeratedSoftmax
    | LearnedSoftmax
    | SinusoidalSoftmax
    | Dense
    | Diagonal
    | LowRank
    | Sparse
    | Kronecker
    | Chebyshev
    | Powers
    | Concatenation
    | Combination
    | Composition
    | Padding
    | Sites
)

__all__ = [
    "Chebyshev",
    "Combination",
    "Composition",
    "Concatenation",
    "ContentSoftmax",
    "Dense",
    "Diagonal",
    "EnumeratedSoftmax",
    "GeneralisedSoftmax",
    "Kronecker",
    "LearnedSoftmax",
    "LowRank",
    "Operator",
    "Padding",
    "Pattern",
    "Positions",
    "Powers",
    "QuadraticSoftmax",
    "Shift",
    "SinusoidalSoftmax",
    "Sites",
    "Softmax",
    "Sparse",
    "apply",
    "as_matrix",
    "causal_shifts",
    "combine",
    "cut_softmax",
    "entries",
    "heads",
    "inner_products",
    "offsets",
    "output_sides",
    "terms",
    "weighted_sum",
]
