"""The sizes of images that a program of torch.export takes, as its file states them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from conv2attn.errors import UsageError

SYMBOL = re.compile(r"Symbol\('(\w+)'(?:, \w+=True)*\)")
ASSUMED = 2
"""The least size that torch.export writes where it knows none; programs run below it."""
Ranges = tuple[tuple[int, int | None], ...]


def ranges_of(sizes: Sequence[Mapping[str, Any]], constraints: Mapping[str, Mapping[str, Any]]) -> Ranges:
    """For each axis the least and the greatest size, None where there is no greatest.

    A size that is an expression of several symbols has no range here.

    Args:
        sizes: those of the image, as integers or texts of symbols.
        constraints: ranges by symbol.
    """
    found: list[tuple[int, int | None]] = []
    for size in sizes:
        if "as_int" in size:
            found.append((size["as_int"], size["as_int"]))
            continue
        symbol = SYMBOL.fullmatch(size["as_expr"]["expr_str"])
        known = constraints.get(symbol[1], {}) if symbol else {}
        low, high = known.get("min_val"), known.get("max_val")
        found.append((low if isinstance(low, int) and low > ASSUMED else 0, high if isinstance(high, int) else None))
    return tuple(found)


def within(image: Tensor, ranges: Ranges) -> Tensor:
    """`image`, if it has a size that the program takes.

    Raises:
        UsageError: it has not (C2A120).
    """
    inside = image.ndim == len(ranges) and all(
        low <= side and (high is None or side <= high) for side, (low, high) in zip(image.shape, ranges, strict=True)
    )
    if not torch.compiler.is_compiling() and not inside:
        found = f"the program takes images {in_words(ranges)}, not {'x'.join(map(str, image.shape))}"
        raise UsageError("C2A120", found, "Pass --input-size or --inputs within these ranges.")
    return image


def in_words(ranges: Ranges) -> str:
    """The ranges as in "(2 to 16, 3, any, at least 8)"."""
    words = []
    for low, high in ranges:
        least = f"at least {low}" if low else "any"
        words.append(least if high is None else f"{low}" if low == high else f"{low} to {high}")
    return f"({', '.join(words)})"
