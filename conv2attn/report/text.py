"""A document as text for a terminal of some width, in colour on request, or as an SVG of that terminal."""

import io
import re
from collections.abc import Iterable
from dataclasses import replace
from textwrap import wrap
from typing import TYPE_CHECKING

from conv2attn.report.document_parts import Cell, Document, Notes, Table, Verbatim, show
from conv2attn.verdicts import Verdict

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

GAP = 2
NAME_WIDTH = 24
"""Characters of a name in the first column, if the table is too wide."""
UNLIMITED = 100_000
PICTURE_WIDTH = 120
"""Columns of a picture of a report."""
STYLES = {
    Verdict.HOLDS: "bold green",
    Verdict.REFUTED: "bold red",
    Verdict.UNDECIDED: "bold yellow",
    Verdict.UNSUPPORTED: "bold yellow",
}


LEVELS = {Verdict.HOLDS: "notice", Verdict.REFUTED: "error"}
"""How GitHub shows a verdict; the others are warnings."""


def to_text(document: Document, width: int | None = None, colour: bool = False) -> str:
    """The answer, then the parts, with a blank line between; no line is longer than `width` except verbatim ones.

    For a table that is too wide, names in the first column are shortened, then spare columns are dropped in their order
    until it fits; dropped ones that still fit are restored, and missing ones are named. If nothing else helps, all
    columns fold.
    """
    from rich.console import Console

    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width or UNLIMITED,
        force_terminal=colour,
        color_system="standard" if colour else None,
        highlight=False,
        markup=False,
    )
    show_on(console, document, width)
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


def to_github(document: Document) -> str:
    """The text, and a workflow command that annotates a run with the answer and the first note."""
    verdict = Verdict.HOLDS if document.verdict is None else document.verdict
    message = "\n".join(document.sentences[: len(document.answer) + 1])
    # A workflow command is one line. GitHub decodes these three codes, of which that of % must be written first.
    for character, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        message = message.replace(character, code)
    return f"{to_text(document)}::{LEVELS.get(verdict, 'warning')} title=conv2attn {verdict.value}::{message}\n"


def to_svg(document: Document) -> str:
    """A picture of a terminal with the document in colour, at most `PICTURE_WIDTH` columns wide; it loads no font."""
    from rich._export_format import CONSOLE_SVG_FORMAT
    from rich.console import Console

    width = min(PICTURE_WIDTH, max(len(line) for line in to_text(document).splitlines()))
    console = Console(file=io.StringIO(), width=width, record=True, force_terminal=True, highlight=False, markup=False)
    show_on(console, document, width)
    # rich's template loads a font from a server; a picture must not load anything.
    without_fonts = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.S)
    return console.export_svg(title="conv2attn", code_format=without_fonts)


def show_on(console: "Console", document: Document, width: int | None) -> None:
    """Prints a document on a console."""
    from rich.text import Text

    for number, line in enumerate(line for each in document.answer for line in wrapped(each, width)):
        # Lines are already wrapped; `soft_wrap` keeps rich from wrapping them again.
        text = Text(line)
        if number == 0 and document.verdict is not None:
            text.highlight_words([document.verdict.value], STYLES[document.verdict])
        console.print(text, soft_wrap=True)
    for part in document.parts:
        match part:
            case Table() if part.rows:
                console.print()
                table, dropped = fitted(part, width)
                console.print(rich_table(table, width is not None and total(widths(table).values()) > width))
                if dropped:
                    for line in wrapped(
                        f"not shown at this width: {', '.join(dropped)} ({document.all_columns})", width
                    ):
                        console.print(Text(line, style="dim"), soft_wrap=True)
            case Notes(lines) if lines:
                console.print()
                for line in (piece for each in lines for piece in wrapped(each, width)):
                    console.print(Text(line), soft_wrap=True)
            case Verbatim(lines) if lines:
                console.print()
                for line in lines:
                    console.print(Text(line), soft_wrap=True)


def wrapped(line: str, width: int | None) -> list[str]:
    """A sentence in lines of at most `width`; words that are longer stay whole."""
    if width is None:
        return [line]
    return wrap(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) or [""]


def fitted(table: Table, width: int | None) -> tuple[Table, list[str]]:
    """The table within `width` characters, and the names of the dropped columns."""
    if width is None or not table.rows or total(widths(table).values()) <= width:
        return table, []
    table = replace(table, rows=tuple((shortened(row[0]), *row[1:]) for row in table.rows))
    needed = widths(table)
    dropped: list[str] = []
    for name in table.spare:
        if total(size for each, size in needed.items() if each not in dropped) > width:
            dropped.append(name)
    # Dropping a wide column may make room for a narrow one that was dropped before it, so dropped columns are tried
    # again.
    for name in reversed(dropped):
        if total(size for each, size in needed.items() if each not in dropped or each == name) <= width:
            dropped.remove(name)
    return table.without(set(dropped)), [name for name in table.columns if name in dropped]


def widths(table: Table) -> dict[str, int]:
    """The width of each column."""
    cells = [list(map(show, row)) for row in table.rows]
    return {name: max(map(len, (name, *(row[place] for row in cells)))) for place, name in enumerate(table.columns)}


def total(sizes: Iterable[int]) -> int:
    """The total width of adjacent columns."""
    return sum(size + GAP for size in sizes) - GAP


def shortened(name: Cell) -> Cell:
    """The end of a long name."""
    return f"…{name[1 - NAME_WIDTH :]}" if isinstance(name, str) and len(name) > NAME_WIDTH else name


def rich_table(table: Table, folds: bool) -> "RichTable":
    """The table as rich lays it out: columns separated by two blanks, numbers aligned right, verdicts in their colour.

    Cells wrap if it `folds`; rich would truncate them otherwise.
    """
    from rich.table import Table as RichTable

    rich = RichTable(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for place, name in enumerate(table.columns):
        side = "right" if table.right(place) else "left"
        rich.add_column(name, justify=side, no_wrap=not folds, overflow="fold")  # type: ignore[arg-type]
    for row in table.rows:
        rich.add_row(*map(styled, row))
    return rich


def styled(cell: Cell) -> "Text":
    """The text of a cell; a verdict has its colour."""
    from rich.text import Text

    return Text(show(cell), style=STYLES[cell] if isinstance(cell, Verdict) else "")
