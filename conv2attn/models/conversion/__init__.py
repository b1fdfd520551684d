"""Theorem 1 over whole networks: every convolution of a copy becomes an equal multi-head self-attention."""

from conv2attn.models.conversion.network import convert
from conv2attn.models.conversion.outcomes import Conversion, ConversionRow, conversion_of
from conv2attn.models.conversion.replacement import attention_layers

__all__ = ["Conversion", "ConversionRow", "attention_layers", "conversion_of", "convert"]
