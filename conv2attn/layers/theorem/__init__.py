"""Theorem 1 of Cordonnier et al. 2020, as a program: any convolution becomes a multi-head self-attention."""

from conv2attn.layers.framework import to_torch
from conv2attn.layers.theorem.construction import attention_for
from conv2attn.layers.theorem.convolution import STOCK, Convolution, has_own_forward, read_convolution
from conv2attn.layers.theorem.deformable import deformable_as_attention
from conv2attn.layers.theorem.modules import convolution_of, module_of
from conv2attn.layers.theorem.tap_matrix import as_convolution, combinations, tap_matrix
from conv2attn.theory.basis import as_basis

__all__ = [
    "STOCK",
    "Convolution",
    "as_basis",
    "as_convolution",
    "attention_for",
    "combinations",
    "convolution_of",
    "deformable_as_attention",
    "has_own_forward",
    "module_of",
    "read_convolution",
    "tap_matrix",
    "to_torch",
]
