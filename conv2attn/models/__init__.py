"""Whole networks: conversion, and the architectures known here."""

from conv2attn.models.conversion import Conversion, ConversionRow, conversion_of, convert
from conv2attn.models.replacement import attention_layers

__all__ = ["Conversion", "ConversionRow", "attention_layers", "conversion_of", "convert"]
