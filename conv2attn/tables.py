"""Tables of a report: rows of cells to aligned text or Markdown; pure functions."""

import math
from collections.abc import Sequence

Cell = str | int | float | None


def text_table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Columns aligned by spaces, numbers to the right.

    >>> print(text_table(["layer", "bound"], [["conv1", 3.1e-05], ["fc", None]]))
    layer    bound
    conv1  3.1e-05
    fc           -
    """
    cells = [list(header), *([show(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [any(isinstance(row[place], int | float) for row in rows) for place in range(len(header))]
    aligned = [
        [
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(line, widths, right, strict=True)
        ]
        for line in cells
    ]
    return "\n".join("  ".join(line).rstrip() for line in aligned)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A Markdown table.

    >>> print(markdown_table(["layer", "bound"], [["conv1", 3.1e-05]]))
    | layer | bound |
    | --- | --- |
    | conv1 | 3.1e-05 |
    """
    lines = [list(header), ["---"] * len(header), *([show(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def show(cell: Cell) -> str:
    """A cell as text: two significant digits of a float, thousands apart, "-" for nothing.

    >>> show(1234567), show(0.0), show(1.6789e-06), show(128.0), show(None)
    ('1,234,567', '0', '1.7e-06', '128', '-')
    """
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:g}" if math.isfinite(cell) and cell == int(cell) and abs(cell) < 1e6 else f"{cell:.2g}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number of things.

    >>> counted(1, "weight"), counted(2, "weight"), counted(0, "bias", "biases")
    ('1 weight', '2 weights', '0 biases')
    """
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def bytes_for_people(count: int) -> str:
    """A number of bytes with a binary unit.

    >>> bytes_for_people(512), bytes_for_people(121 * 2**30)
    ('512 B', '121 GiB')
    """
    power = min(5, max(0, count.bit_length() - 1) // 10)
    return f"{count / 1024**power:.3g} {('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[power]}"
