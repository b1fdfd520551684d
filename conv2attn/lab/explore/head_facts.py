"""The facts of `heads` about a layer, for its page: those that the table of facts explores, and the span's reach."""

from functools import reduce

import msgspec
import numpy as np
from numpy.typing import NDArray

from conv2attn.lab.explore.packing import PageObject
from conv2attn.span.arrays import MEMORY_LIMIT
from conv2attn.span.graded_facts import sums_of
from conv2attn.span.graded_facts.fact_table import facts_explored
from conv2attn.span.graded_facts.measures import spanned
from conv2attn.span.graded_facts.measuring import facts_of
from conv2attn.span.graded_facts.sums import Sums, kernel
from conv2attn.span.reading import rows_of

FACTS_SIDE = 14
"""Facts of layers by position alone are measured on at most so many rows and columns: they cost the square of these."""


def facts_of_heads(name: str, layer: object, sides: tuple[int, ...], extra: int = 0) -> PageObject:
    """The graded facts of each head, and R^2 of the span for each shift of a 3x3 kernel, on a grid of these sides.

    Args:
        layer: a layer that reads no content, or its attention (images, heads, queries, keys).
        extra: leading tokens that are no pixels.
    """
    rows = rows_of(name, layer, sides, len(sides), extra, MEMORY_LIMIT)
    facts = facts_of(rows, None, None)
    fits = len(sides) == 2 and min(rows.grid.keys) >= 3
    whole, explored = reduce(Sums.__add__, sums_of(rows)), facts_explored()
    return {
        "grid": [*sides],
        "columns": [{"name": fact.name, "title": fact.words, "unit": fact.unit} for fact in explored],
        "heads": [{fact.name: msgspec.to_builtins(fact.of_head(head)) for fact in explored} for head in facts.heads],
        "thumbnails": [thumbnail(each) for each in whole.mass.mean(0) / whole.queries],
        "span": [float(value) for value in spanned(whole, [kernel(3, 1, 2)])(None)] if fits else None,
    }


REACH = 6
"""Displacements to each side of 0 that a thumbnail shows."""


def thumbnail(mass: NDArray[np.float64]) -> PageObject:
    """The mean attention of a head by displacement around 0, as numbers from 0 to 99 of its largest, row-major."""
    middle = [side // 2 for side in mass.shape]
    part = mass[tuple(slice(max(0, at - REACH), at + REACH + 1) for at in middle)]
    scaled = np.sqrt(part / max(float(part.max()), 1e-30)) * 99
    return {"sides": [*part.shape], "values": [int(x) for x in np.rint(scaled).ravel()]}
