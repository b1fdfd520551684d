"""Cells, counts and sizes in words; pure functions."""

import math
from collections.abc import Iterable

from conv2attn.verdicts import Strength, Verdict

Cell = str | int | float | Verdict | Strength | None


def show(cell: Cell) -> str:
    """A cell as text: two significant digits of a float, thousands apart, "-" for nothing.

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
