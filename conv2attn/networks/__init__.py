"""Whole networks: conversion, capture of their attention in runs, and the supported architectures."""

from conv2attn.networks.conversion import (
    Conversion,
    ConversionRow,
    attention_layers,
    conversion_of,
    convert,
)
from conv2attn.networks.copies import copy_network as copy_network
from conv2attn.networks.layers import layer_inputs as layer_inputs
from conv2attn.networks.provenance import Provenance as Provenance
from conv2attn.networks.provenance import provenance_of as provenance_of
from conv2attn.networks.provenance import with_provenance as with_provenance
from conv2attn.networks.softening import SoftenedLayer, Softening, soften, softened
from conv2attn.networks.specimens import specimen_of as specimen_of
from conv2attn.networks.specimens import specimen_size as specimen_size

__all__ = [
    "Conversion",
    "ConversionRow",
    "SoftenedLayer",
    "Softening",
    "attention_layers",
    "conversion_of",
    "convert",
    "soften",
    "softened",
]
