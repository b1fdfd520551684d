"""Reports: a result gives its content as a `Document`, and this package alone renders it."""

from conv2attn.report.document_parts import Document, Notes, Table, Verbatim
from conv2attn.report.result import Report, document
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
    "document",
    "gathered",
    "show",
]
