"""Grids, families of token-mixing operators, and `Basis`: `y = sum_k P_k x M_k^T + b`, the description of a layer."""

from conv2attn.basis.basis import Basis, as_affine_map, as_basis, basis_of, evaluate
from conv2attn.basis.composition import compose, merged
from conv2attn.basis.grid import AttentionGrid, Offset, Sides, Sites
from conv2attn.basis.numbers import Numbers
from conv2attn.basis.operators import (
    Composition,
    ContentSoftmax,
    Dense,
    EnumeratedSoftmax,
    GeneralisedSoftmax,
    LearnedSoftmax,
    Operator,
    Positions,
    QuadraticSoftmax,
    Shift,
    SinusoidalSoftmax,
    Softmax,
    apply,
    as_matrix,
    cut_softmax,
    output_sides,
    terms,
)
from conv2attn.basis.padding import PADDING_MODES, Padding
from conv2attn.basis.weights import Weights

__all__ = [
    "PADDING_MODES",
    "AttentionGrid",
    "Basis",
    "Composition",
    "ContentSoftmax",
    "Dense",
    "EnumeratedSoftmax",
    "GeneralisedSoftmax",
    "LearnedSoftmax",
    "Numbers",
    "Offset",
    "Operator",
    "Padding",
    "Positions",
    "QuadraticSoftmax",
    "Shift",
    "Sides",
    "SinusoidalSoftmax",
    "Sites",
    "Softmax",
    "Weights",
    "apply",
    "as_affine_map",
    "as_basis",
    "as_matrix",
    "basis_of",
    "compose",
    "cut_softmax",
    "evaluate",
    "merged",
    "output_sides",
    "terms",
]
