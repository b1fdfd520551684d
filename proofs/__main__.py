"""Prints the generated part of proofs/README.md."""

from . import report
from .rendering import table

print(table(report()), end="")
