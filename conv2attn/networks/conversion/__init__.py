"""Theorem 1 over whole networks: every convolution of a copy becomes an equal multi-head self-attention.

A layer becomes attention where it stands (`replacement.become`): the object, its parameters and everything that refers
to them stay. Two things in a converted network do not show in its structure. A module that calls convolutions as
functions has a `forward` of its own (`redirection.AttendedForward`): what a forward calls is known only while it runs,
hooks are not called after a KeyboardInterrupt, and a wrapper would change names and classes. Inside such a module, the
hooks `redirection.pause` and `resume` stand on convolutions that stay as they are. And the network has an attribute
with what became of each convolution (`outcomes.remember`), which `conversion_of` reads, because copies, pickles and
files have to keep it.
"""

from conv2attn.networks.conversion.network import convert
from conv2attn.networks.conversion.outcomes import Conversion, ConversionRow, conversion_of
from conv2attn.networks.layers import attention_layers, encodings_of

__all__ = ["Conversion", "ConversionRow", "attention_layers", "conversion_of", "convert", "encodings_of"]
