"""Convolution and attention as one kind of layer (Andreoli 2019): the basis is given, or computed from content."""

from conv2attn.layers.framework.attention_convolution import AttentionConvolution, BasisConvolution
from conv2attn.layers.framework.mechanisms import BiAffine, DotProduct, Mechanism, Quadratic
from conv2attn.layers.framework.torch_layers import from_torch, to_torch

__all__ = [
    "AttentionConvolution",
    "BasisConvolution",
    "BiAffine",
    "DotProduct",
    "Mechanism",
    "Quadratic",
    "from_torch",
    "to_torch",
]
