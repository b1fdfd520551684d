"""Results as things to read: a result says what it is as a `Document`, and this package alone says how that looks."""

from conv2attn.report.document import Document, Notes, Table, Verbatim
from conv2attn.report.result import Report
from conv2attn.report.words import Cell, bytes_for_people, counted, gathered, show

__all__ = [
    "Cell",
    "Document",
    "Notes",
    "Report",
    "Table",
    "Verbatim",
    "bytes_for_people",
    "counted",
    "gathered",
    "show",
]
