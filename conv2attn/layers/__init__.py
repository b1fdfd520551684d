"""Modules: the attention layer, its engines, basis convolutions, and Theorem 1 in both directions."""
