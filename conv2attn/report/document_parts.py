"""The parts of a report, before it is text, Markdown, HTML, LaTeX or CSV."""

import re
from dataclasses import dataclass, replace
from typing import final

from conv2attn.errors import ARGUMENTS, OPTION
from conv2attn.report.words import Cell
from conv2attn.verdicts import Verdict


@final
@dataclass(frozen=True)
class Table:
    """Rows below named columns. A narrow terminal drops the `spare` columns, in their order."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    spare: tuple[str, ...] = ()

    def without(self, columns: set[str]) -> "Table":
        """The table without some columns."""
        columns_left = [place for place, name in enumerate(self.columns) if name not in columns]
        rows = tuple(tuple(row[place] for place in columns_left) for row in self.rows)
        return Table(tuple(self.columns[place] for place in columns_left), rows, self.spare)

    def right(self, place: int) -> bool:
        """Whether a column is of numbers, which are flush right."""
        cells = [row[place] for row in self.rows]
        return any(isinstance(cell, int | float) or (isinstance(cell, str) and cell.endswith("%")) for cell in cells)


@final
@dataclass(frozen=True)
class Notes:
    """Sentences: wrapped in a terminal, a list in a document."""

    lines: tuple[str, ...]


@final
@dataclass(frozen=True)
class Verbatim:
    """Preformatted lines: pictures of characters, and commands to type."""

    lines: tuple[str, ...]


DocumentPart = Table | Notes | Verbatim


@final
@dataclass(frozen=True)
class Document:
    """The answer, whose first line begins with the verdict where there is one, and the parts that say more.

    `all_columns` is how one asks for columns that a narrow terminal leaves out.
    """

    answer: tuple[str, ...]
    parts: tuple[DocumentPart, ...] = ()
    verdict: Verdict | None = None
    all_columns: str = "--wide"

    @property
    def tables(self) -> list[Table]:
        """The tables among the parts."""
        return [part for part in self.parts if isinstance(part, Table)]

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answer and all notes."""
        return (*self.answer, *(line for part in self.parts if isinstance(part, Notes) for line in part.lines))


VERBOSE = re.compile(r"(?<![\w-])-v\b")
"""The option of the command line for a report with all details."""


def for_python(document: Document) -> Document:
    """A document as Python prints it: options of the command line are arguments; a command to type stays as it is."""

    def said(line: str) -> str:
        if "conv2attn " in line:
            return line
        named = OPTION.sub(lambda option: ARGUMENTS.get(option[1], option[1].replace("-", "_")), line)
        return VERBOSE.sub("to_text(verbose=True)", named)

    parts = (Notes(tuple(map(said, part.lines))) if isinstance(part, Notes) else part for part in document.parts)
    return replace(document, parts=tuple(parts), all_columns="to_text() has them")
