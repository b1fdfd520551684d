"""The parts and words of a report, before it is rendered as text, Markdown, HTML, LaTeX or CSV."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import final

from conv2attn.errors import ARGUMENTS, OPTION
from conv2attn.verdicts import Strength, Verdict

Cell = str | int | float | Verdict | Strength | None


def show(cell: Cell) -> str:
    """A cell as text: two significant digits of a float, separated thousands, "-" for None.

    >>> show(1234567), show(0.0), show(1.6789e-06), show(128.0), show(None), show(Verdict.HOLDS)
    ('1,234,567', '0', '1.7e-06', '128', '-', 'holds')
    """
    if cell is None:
        return "-"
    if isinstance(cell, Verdict | Strength):
        return cell.value
    if isinstance(cell, float):
        return f"{cell:g}" if math.isfinite(cell) and cell == int(cell) and abs(cell) < 1e6 else f"{cell:.2g}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number with its noun.

    >>> counted(1, "weight"), counted(2, "weight"), counted(0, "bias", "biases")
    ('1 weight', '2 weights', '0 biases')
    """
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def bytes_for_people(count: int) -> str:
    """A number of bytes with a binary unit.

    >>> bytes_for_people(512), bytes_for_people(121 * 2**30)
    ('512 B', '121 GiB')
    """
    # The bit length is exact, while a logarithm may round up just below a power of 1024.
    power = min(5, max(0, count.bit_length() - 1) // 10)
    return f"{count / 1024**power:.3g} {('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[power]}"


def gathered(sentences: Iterable[tuple[str, str]], most: int | None = 3) -> list[str]:
    """One line per sentence with all its names, in order of first appearance; names beyond `most` are counted.

    >>> gathered([("a", "skipped"), ("b", "padded"), ("c", "skipped"), ("d", "skipped")], most=2)
    ['a, c and 1 more: skipped', 'b: padded']
    """
    names: dict[str, list[str]] = {}
    for name, sentence in sentences:
        names.setdefault(sentence, []).append(name)
    lines = []
    for sentence, whom in names.items():
        listed = whom if most is None or len(whom) <= most else whom[:most]
        more = f" and {len(whom) - len(listed)} more" if len(listed) < len(whom) else ""
        lines.append(f"{', '.join(dict.fromkeys(listed))}{more}: {sentence}")
    return lines


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
        """Whether a column has numbers, which are aligned right."""
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
    """Preformatted lines: character pictures, and commands to type."""

    lines: tuple[str, ...]


DocumentPart = Table | Notes | Verbatim


@final
@dataclass(frozen=True)
class Document:
    """The answer, whose first line begins with the verdict if there is one, and the detailed parts.

    `all_columns` names the option for columns that a narrow terminal leaves out.
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
    """A document for Python: options of the command line become arguments; commands to type are unchanged."""

    def said(line: str) -> str:
        if "conv2attn " in line:
            return line
        named = OPTION.sub(lambda option: ARGUMENTS.get(option[1], option[1].replace("-", "_")), line)
        return VERBOSE.sub("to_text(verbose=True)", named)

    parts = (Notes(tuple(map(said, part.lines))) if isinstance(part, Notes) else part for part in document.parts)
    return replace(document, parts=tuple(parts), all_columns="to_text() has them")
