"""Graded facts of heads: shares, distances and nearest convolutions, each with a standard error."""
