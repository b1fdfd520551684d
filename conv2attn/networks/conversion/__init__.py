"""Theorem 1 over whole networks: every convolution of a copy becomes an equal multi-head self-attention.

A layer becomes attention in place (`replacement.become`): the object, its parameters and all references to them stay.
Two parts of a converted network are not visible in its structure. First, a module that calls convolutions as functions
has a replaced `forward` (`redirection.AttendedForward`): the calls of a forward are known only while it runs, hooks are
not called after a KeyboardInterrupt, and a wrapper would change names and classes. Inside such a module, convolutions
that stay convolutions have the hooks `redirection.pause` and `resume`. Second, the network has an attribute with the
outcome for each convolution (`outcomes.remember`), which `conversion_of` reads, because copies, pickles and files have
to keep it.
"""

from conv2attn.networks.conversion.network import convert
from conv2attn.networks.conversion.outcomes import Conversion, ConversionRow, conversion_of
from conv2attn.networks.layers import attention_layers, encodings_of

__all__ = ["Conversion", "ConversionRow", "attention_layers", "conversion_of", "convert", "encodings_of"]
