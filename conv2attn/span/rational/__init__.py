"""Containment in rational numbers, and the independent check of a witness."""
