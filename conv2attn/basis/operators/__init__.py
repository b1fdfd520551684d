"""Families of token-mixing operators, one file a family, and the questions that each of them answers by a rule."""

from conv2attn.basis.operators.composition import Composition
from conv2attn.basis.operators.content import ContentSoftmax
from conv2attn.basis.operators.dense import Dense
from conv2attn.basis.operators.enumerated import EnumeratedSoftmax
from conv2attn.basis.operators.generalised import GeneralisedSoftmax
from conv2attn.basis.operators.geometry import Padding, Sites
from conv2attn.basis.operators.learned import LearnedSoftmax
from conv2attn.basis.operators.quadratic import QuadraticSoftmax
from conv2attn.basis.operators.rules import apply, as_matrix, output_sides, terms
from conv2attn.basis.operators.shift import Shift
from conv2attn.basis.operators.sinusoidal import SinusoidalSoftmax
from conv2attn.basis.operators.softmax import Positions, Softmax, cut_softmax

Operator = (
    Shift
    | QuadraticSoftmax
    | GeneralisedSoftmax
    | EnumeratedSoftmax
    | LearnedSoftmax
    | SinusoidalSoftmax
    | Dense
    | Composition
    | Padding
    | Sites
)

__all__ = [
    "Composition",
    "ContentSoftmax",
    "Dense",
    "EnumeratedSoftmax",
    "GeneralisedSoftmax",
    "LearnedSoftmax",
    "Operator",
    "Padding",
    "Positions",
    "QuadraticSoftmax",
    "Shift",
    "SinusoidalSoftmax",
    "Sites",
    "Softmax",
    "apply",
    "as_matrix",
    "cut_softmax",
    "output_sides",
    "terms",
]
