"""Grids, token-mixing operators and the basis convolution `y = sum_k P_k x M_k^T + b`."""

from conv2attn.basis.composition import compose, merged
from conv2attn.basis.convolution import BasisConvolution, as_affine_map, as_basis, evaluate
from conv2attn.basis.grid import AttentionGrid, Offset, Sides, Sites
from conv2attn.basis.operators import (
    Composition,
    Dense,
    Operator,
    QuadraticSoftmax,
    Shift,
    apply,
    as_matrix,
    output_sides,
)
from conv2attn.basis.padding import PADDING_MODES, Padding

__all__ = [
    "PADDING_MODES",
    "AttentionGrid",
    "BasisConvolution",
    "Composition",
    "Dense",
    "Offset",
    "Operator",
    "Padding",
    "QuadraticSoftmax",
    "Shift",
    "Sides",
    "Sites",
    "apply",
    "as_affine_map",
    "as_basis",
    "as_matrix",
    "compose",
    "evaluate",
    "merged",
    "output_sides",
]
