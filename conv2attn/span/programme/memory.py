"""Bytes that the programme keeps while it reads attention in chunks: a limit of memory is observed or refused."""

import math

from conv2attn.errors import UsageError
from conv2attn.span.conditions.problem import AttentionRows, Targets
from conv2attn.span.programme.master import AT_ONCE
from conv2attn.span.programme.search import CUTS, HELD, ROWS

MIB = 2**20
PASSES = 8
"""Passes whose cuts are held at a time: after that, those of no weight have been dropped."""
OVERHEAD = 500
"""Bytes of a cut beside its numbers."""
SOLVING = 100
"""Bytes that the solver takes for each slope."""
EXACT = 240
"""Bytes of an exact integer: its place, the 1,130 bits that the floats of a row may span, and what allocating adds."""


def least_limit(attention: AttentionRows, targets: Targets, conditions: int) -> int:
    """Bytes for what is kept (mixings of each query, duals, cuts, rows in exact numbers), and a third of it for chunks.

    One-hot rows are kept as few patterns, whose chunks are small, and need no duals.
    """
    heads, width, asked = attention.heads, attention.width, len(targets)
    mixings = 8 * attention.images * attention.grid.shape[0] * asked * (heads + 1)
    if attention.hot is not None:
        return mixings
    duals = 8 * conditions * asked * (heads + 1) * width
    cuts = asked * (3 * (heads + 3) + 2 * CUTS * PASSES) * (width + 8 * heads + OVERHEAD)
    rows = (EXACT * (ROWS + heads + 1) + 8 * max(HELD, asked * (heads + 1))) * heads * width
    return (3 * mixings + duals + cuts + rows + SOLVING * AT_ONCE) * 4 // 3


def check_memory(attention: AttentionRows, targets: Targets, conditions: int, memory_limit: int) -> None:
    """Refuses a limit that is not enough.

    Raises:
        UsageError: it is not, with the least that is (C2A202).
    """
    least = least_limit(attention, targets, conditions)
    if memory_limit < least:
        needed = math.ceil(least / MIB)
        raise UsageError(
            "C2A202",
            f"{attention.name}: {attention.heads} heads and {len(targets)} targets need {needed} MiB of memory",
            f"Raise memory_limit (--memory-limit) to {needed} MiB, or name fewer offsets.",
        )
