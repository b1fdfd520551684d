"""The facts of `heads` about a layer, for its page: shares, distances, and how far the span of the heads reaches."""

from typing import Any

import numpy as np

from conv2attn.span.measures import kernel, masses
from conv2attn.span.questions import rows_of
from conv2attn.span.sources.reading import MEMORY_LIMIT

SIDE = 14
"""Facts are measured on at most so many rows and columns: they cost the square of the pixels."""


def facts_of_heads(name: str, layer: Any, sides: tuple[int, ...], extra: int = 0) -> dict[str, Any]:
    """The graded facts of each head, and R^2 of the span for each shift of a 3x3 kernel, on a grid of these sides.

    Args:
        layer: a layer that reads no content, or its attention (images, heads, queries, keys).
        extra: leading tokens that are no pixels.
    """
    rows = rows_of(name, layer, sides, 2, extra, MEMORY_LIMIT)
    seen = masses(rows)
    relative, absolute, content = seen.shares
    kept = {
        "relative": relative,
        "absolute": absolute,
        "content": content,
        "distance": seen.distance,
        "keys": np.exp(seen.entropy),
        "sink": seen.sink,
    }
    fits = min(rows.grid.keys) >= 3
    return {
        "grid": [*sides],
        "heads": {key: [float(value) for value in values] for key, values in kept.items()},
        "span": [float(value) for value in seen.spanned(kernel(3, 1, 2))] if fits else None,
    }
