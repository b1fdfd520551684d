"""A document as Markdown, HTML, LaTeX and CSV; pure functions."""

import csv
import io
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, assert_never

from conv2attn.report.document_parts import Cell, Document, DocumentPart, Notes, Table, Verbatim, show
from conv2attn.verdicts import Strength, Verdict

LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
} | {sign: f"\\{sign}" for sign in "_#&%$"}
PAGE_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}th,td{padding:.2em .8em .2em 0;text-align:left}"
    "th{border-bottom:1px solid}.number{text-align:right;font-variant-numeric:tabular-nums}"
)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A Markdown table.

    >>> print(markdown_table(["layer", "bound"], [["conv1", 3.1e-05]]))
    | layer | bound |
    | --- | --- |
    | conv1 | 3.1e-05 |
    """
    lines = [list(header), ["---"] * len(header), *([show(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def to_markdown(document: Document) -> str:
    """The answer, then tables, lists and code blocks."""

    def part(each: DocumentPart) -> list[str]:
        match each:
            case Table(columns, rows):
                return ["", markdown_table(columns, rows)] if rows else []
            case Notes(lines):
                return ["", *(f"- {line}" for line in lines)] if lines else []
            case Verbatim(lines):
                return ["", "```", *lines, "```"] if lines else []
            case _:
                assert_never(each)

    return "\n".join([*document.answer, *(line for each in document.parts for line in part(each))]) + "\n"


def to_html(document: Document) -> str:
    """A fragment of HTML for a notebook."""

    def part(each: DocumentPart) -> str:
        match each:
            case Table():
                return html_table(each) if each.rows else ""
            case Notes(lines):
                return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>" if lines else ""
            case Verbatim(lines):
                return "<pre>" + escape("\n".join(lines)) + "</pre>" if lines else ""
            case _:
                assert_never(each)

    first, *other_lines = document.answer
    answer = f"<p><b>{escape(first)}</b></p>" + "".join(f"<p>{escape(line)}</p>" for line in other_lines)
    return answer + "".join(map(part, document.parts))


def html_table(table: Table) -> str:
    """The table with all its columns."""
    kinds = [' class="number"' if table.right(place) else "" for place in range(len(table.columns))]
    head = "".join(f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, table.columns, strict=True))
    rows = (
        "".join(f"<td{kind}>{escape(show(cell))}</td>" for kind, cell in zip(kinds, row, strict=True))
        for row in table.rows
    )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def to_page(document: Document) -> str:
    """A whole page of HTML, which loads nothing."""
    title = escape(document.answer[0])
    head = f'<meta charset="utf-8"><title>{title}</title><style>{PAGE_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{to_html(document)}</body></html>\n'


def latex_escape(text: str) -> str:
    """`text` escaped for LaTeX."""
    return "".join(LATEX.get(sign, sign) for sign in text)


def to_latex(document: Document) -> str:
    """A tabular for each table, with the rules of the package booktabs; the answer is a comment above."""
    lines = [f"% {line}" for line in document.answer]
    for table in (each for each in document.tables if each.rows):
        places = "".join("r" if table.right(place) else "l" for place in range(len(table.columns)))
        rows = [table.columns, *([show(cell) for cell in row] for row in table.rows)]
        head, *body = (" & ".join(map(latex_escape, row)) + r" \\" for row in rows)
        lines += [rf"\begin{{tabular}}{{{places}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule"]
        lines.append(r"\end{tabular}")
    return "\n".join(lines) + "\n"


def records(table: Table) -> list[dict[str, Any]]:
    """A dictionary for each row: numbers as numbers."""
    plain = [[cell.value if isinstance(cell, Verdict | Strength) else cell for cell in row] for row in table.rows]
    return [dict(zip(table.columns, row, strict=True)) for row in plain]


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """A header, and a line for each record."""
    lines = io.StringIO()
    if rows:
        writer = csv.DictWriter(lines, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return lines.getvalue()
