"""Reports: a result provides its content as a `Document`, and only this package renders it."""

from conv2attn.report.document_parts import (
    Cell,
    Document,
    Notes,
    Table,
    Verbatim,
    bytes_for_people,
    counted,
    gathered,
    show,
)
from conv2attn.report.markup import markdown_table, to_html, to_latex, to_markdown
from conv2attn.report.result import Report, Result, document
from conv2attn.report.text import to_svg, to_text

__all__ = [
    "Cell",
    "Document",
    "Notes",
    "Report",
    "Result",
    "Table",
    "Verbatim",
    "bytes_for_people",
    "counted",
    "document",
    "gathered",
    "markdown_table",
    "show",
    "to_html",
    "to_latex",
    "to_markdown",
    "to_svg",
    "to_text",
]
