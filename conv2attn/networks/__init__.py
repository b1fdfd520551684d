"""Whole networks: conversion, the attention that they show as they run, and the architectures known here."""

from conv2attn.networks.conversion import (
    Conversion,
    ConversionRow,
    attention_layers,
    conversion_of,
    convert,
    on_patches,
)
from conv2attn.networks.softening import SoftenedLayer, Softening, soften, softened

__all__ = [
    "Conversion",
    "ConversionRow",
    "SoftenedLayer",
    "Softening",
    "attention_layers",
    "conversion_of",
    "convert",
    "on_patches",
    "soften",
    "softened",
]
