"""Families of token-mixing operators, and the rules (`as_matrix`, `apply`, ...) that every family has."""

from conv2attn.theory.basis.operator import apply, as_matrix, combine, offsets, output_sides, terms
from conv2attn.theory.basis.operators import geometry  # noqa: F401 -- its rules for paddings and sites
from conv2attn.theory.basis.operators.combination import Combination, Composition, Concatenation
from conv2attn.theory.basis.operators.content import ContentSoftmax
from conv2attn.theory.basis.operators.enumerated import EnumeratedSoftmax
from conv2attn.theory.basis.operators.generalised import GeneralisedSoftmax
from conv2attn.theory.basis.operators.learned import LearnedSoftmax
from conv2attn.theory.basis.operators.pattern import Pattern, inner_products, weighted_sum
from conv2attn.theory.basis.operators.polynomials import Chebyshev, Powers
from conv2attn.theory.basis.operators.quadratic import Centered, QuadraticSoftmax, isotropic
from conv2attn.theory.basis.operators.shift import Shift, causal_shifts
from conv2attn.theory.basis.operators.sinusoidal import SinusoidalSoftmax
from conv2attn.theory.basis.operators.softmax import MOST_KEYS, Positions, cut_depth, cut_softmax
from conv2attn.theory.basis.operators.sparse import Dense, Sparse

FAMILIES: dict[str, type[Positions]] = {
    family.name: family
    for family in (QuadraticSoftmax, EnumeratedSoftmax, GeneralisedSoftmax, LearnedSoftmax, SinusoidalSoftmax)
}
"""The families of heads that attend by position, by their names in files, in options and on the command line."""

__all__ = [
    "FAMILIES",
    "MOST_KEYS",
    "Centered",
    "Chebyshev",
    "Combination",
    "Composition",
    "Concatenation",
    "ContentSoftmax",
    "Dense",
    "EnumeratedSoftmax",
    "GeneralisedSoftmax",
    "LearnedSoftmax",
    "Pattern",
    "Positions",
    "Powers",
    "QuadraticSoftmax",
    "Shift",
    "SinusoidalSoftmax",
    "Sparse",
    "apply",
    "as_matrix",
    "causal_shifts",
    "combine",
    "cut_depth",
    "cut_softmax",
    "inner_products",
    "isotropic",
    "offsets",
    "output_sides",
    "terms",
    "weighted_sum",
]
