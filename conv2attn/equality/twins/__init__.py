"""Decides whether two networks are the same code except for their layers, and runs one with the layers of the other."""
