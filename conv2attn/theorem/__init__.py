"""Theorem 1 of Cordonnier et al. 2020, as a program: any convolution as a multi-head self-attention."""

from conv2attn.theorem.construction import attention_for
from conv2attn.theorem.convolution import STOCK, Convolution, has_own_forward, read

__all__ = ["STOCK", "Convolution", "attention_for", "has_own_forward", "read"]
