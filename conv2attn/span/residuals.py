"""What mixings leave at each row, rounded up, and the rows where they leave most."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from conv2attn.span.attention_rows import ROUNDOFF, Array, Whole
from conv2attn.span.equations import Portion, Targets
from conv2attn.theory.bounds import gamma

CANDIDATES = 4
"""Mixings a head whose residuals are computed at once."""


def rounded_up(left: Array, mixings: Array, coefficients: Array, asked: Array, row_sum: float, width: int) -> Array:
    """`left`, the computed sums over keys of `e - phi A`, with all rounding of float64 on top.

    No key is asked for by two taps of one row; `asked` is the largest sum of what is asked for at one. Mixings with at
    most one non-zero, a power of two, make exact products.
    """
    steps = mixings.shape[-1] + 4
    reach = asked + np.abs(mixings).sum(-1) * row_sum
    powers = ((np.frexp(np.abs(mixings))[0] == 0.5) | (mixings == 0)).all(-1)
    selects = ((mixings != 0).sum(-1) <= 1) & powers & ((coefficients != 0).sum(-1) <= 1)
    # Selecting one head and comparing it with a single one loses nothing; all other products round (Higham 2002, 3.5).
    drift = np.where(selects, 0.0, gamma(steps, ROUNDOFF["float64"]) * reach)
    return np.asarray((left + drift) * (1 + 2 * gamma(width + 4, ROUNDOFF["float64"])))


def left_by(portion: Portion, coefficients: Array, mixings: Array) -> Array:
    """`e - phi A` of each candidate, (candidates, rows, keys)."""
    heads, rows, keys = portion.attention.shape
    left = (-mixings @ portion.attention.reshape(heads, -1)).reshape(len(mixings), rows, keys)
    add_asked(left, portion, coefficients)
    return left


def add_asked(rows: Array, portion: Portion, coefficients: Array) -> None:
    """Adds what each candidate asks for to its rows, (candidates, rows, keys)."""
    for tap, places in enumerate(portion.places):
        queries = np.flatnonzero(places >= 0)
        rows[:, queries, places[queries]] += coefficients[:, tap, None]


def residuals_of(
    portions: Iterable[Portion], targets: Targets, width: int, mixings: Array, wanted: NDArray[np.int64], most: int
) -> tuple[Array, list[Whole]]:
    """Residual of each mixing (candidates, heads), for target `wanted[c]`, at the worst row, rounded up.

    With it come the at most `most` rows where it leaves most, worst first. `width` is the number of keys of the grid.
    """
    worst, row_sum = np.zeros(len(mixings)), 0.0
    sizes_kept: Array = np.zeros((len(mixings), 0))
    rows_kept: Whole = np.zeros((len(mixings), 0), dtype=np.int64)
    for portion in portions if len(mixings) else ():
        # Rows of attention sum to 1 only up to rounding, so the largest sum bounds what a mixing moves.
        row_sum, width = max(row_sum, float(portion.attention.sum(-1).max())), max(width, portion.attention.shape[2])
        step = CANDIDATES * mixings.shape[-1]
        parts = [slice(start, start + step) for start in range(0, len(mixings), step)]
        sizes = np.concatenate([
            np.abs(left_by(portion, targets.coefficients[wanted[part]], mixings[part])).sum(-1) for part in parts
        ])  # fmt: skip
        worst = np.maximum(worst, sizes.max(-1))
        if most:
            sizes_kept = np.concatenate([sizes_kept, sizes], 1)
            rows_kept = np.concatenate([rows_kept, np.broadcast_to(portion.rows, sizes.shape)], 1)
            # The worst rows of all portions so far: sorting few beside few is cheaper than keeping all sizes.
            order = np.argsort(-sizes_kept, axis=1, kind="stable")[:, :most]
            sizes_kept = np.take_along_axis(sizes_kept, order, 1)
            rows_kept = np.take_along_axis(rows_kept, order, 1)
    coefficients, largest = targets.coefficients[wanted], targets.largest[wanted]
    return rounded_up(worst, mixings, coefficients, largest, row_sum * (1 + 1e-9), width), list(rows_kept)
